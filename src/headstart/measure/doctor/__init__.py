"""`headstart doctor`: will speculation help here, with which drafter and how long drafts; and why.

`examine` measures; everything between the measurements and the verdict is a pure function of numbers.
"""
