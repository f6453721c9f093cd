"""The harness by which menders and gates are judged: sources, targets, methods, rows, tables and a picture.

A *source* is a data set, a backbone and a run seed: a trained, frozen model. A *target* is a graph on which that model
is to predict: shifted, corrupted, attacked, or not harmed at all. A *method* may change the graph before the model
predicts. Every module here is one step: :mod:`sources`, :mod:`targets`, :mod:`methods`, :mod:`measure`, :mod:`tables`.
"""
