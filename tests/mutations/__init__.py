"""The engine, broken on purpose in one place at a time: does the simulation find it?"""
