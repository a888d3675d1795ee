"""What we believe: the laws of the operators, and the table of classes they give a program.

``term`` says what an expression is, ``law`` what a law is; the laws stand in one file per family
and ``registry`` lists them all. ``saturate`` applies them to a program, with egglog, and hands back
a ``ClassTable``. ``proof_find`` derives a µGraph from its program and ``certificate`` replays that.
Nothing is imported here, so that reading a term or a law does not load egglog.
"""
