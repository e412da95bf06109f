"""The child process that runs user code, and the words it speaks with its worker."""
