"""Models as PyG's examples and tutorials write theirs, each with its graph and what becomes of it.

A :class:`Specimen` says what is expected; ``tests/model/test_zoo.py`` holds it to that and to the table in
``docs/models.md``, which is made from the same list: ``PYTHONPATH=src:tests python -m support.zoo.table``.
"""
