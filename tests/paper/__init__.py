"""Definitions and protocols of "Delivery, consistency, and determinism", one test for each.

Trofimov, Kuralenok, Marshalkin, Novikov: Delivery, consistency, and determinism: rethinking
guarantees in distributed stream processing. Each docstring quotes what its test checks.
"""
