-- Name the channel of this store.
SELECT outlast_channel_v1()
