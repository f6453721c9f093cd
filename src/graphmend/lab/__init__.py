"""The lab: data sets, backbones, trainers, attacks, measures and experiments, for those who compare methods.

Nothing outside of it imports it. ``pip install 'graphmend[lab]'`` brings what it needs.
"""
