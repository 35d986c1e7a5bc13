"""How does a file of requests become a file of answers? ``cli.batch`` is the door to this room.

A walk: ``input_file`` finds lines, ``lines`` reads one, ``bodies`` turns its body into a prompt and
sampling parameters, ``run`` keeps the engine full, ``answers`` writes the object of an answer,
``output_file`` appends it so that a kill at any moment loses nothing that was written.
"""
