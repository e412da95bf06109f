"""Check arguments, results and checkpoints, and convert them to and from their stored form.

signature.py     a task's parameters: calls bound to them, arguments read back
codec.py         values as JSON text, checked against an annotation
payloads.py      JSON in its stored form: compressed, encrypted or plain
option_words.py  the names that other job queues give to options; errors use them to suggest ours
"""
