"""Arguments, results and checkpoints: how they are checked, and what is stored of them.

signature.py     a task's parameters: calls bound to them, arguments read back
codec.py         values as JSON text, checked against an annotation
payloads.py      JSON as it is stored: compressed, encrypted or plain
option_words.py  what other queues call an option, for errors
"""
