"""From one machine to a fleet: what headstart trained, chose and proved, carried to vLLM and SGLang.

headstart does not serve a fleet itself. It writes what those engines load, starts them, proves that they accept what
headstart accepts, and adapts the drafter to what they serve.
"""
