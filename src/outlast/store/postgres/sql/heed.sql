-- Say on a worker's row which pauses it acts on: from now on it starts nothing of them. Written after the
-- worker has given back what had not begun, so that its reader may rely on it. A plain update: it does
-- not conflict with the KEY SHARE of an exchange. Another worker's row, under an id that was issued again, is
-- left alone.
UPDATE outlast_workers SET heeds = $2 WHERE id = $1 AND registration IS NOT DISTINCT FROM $3
