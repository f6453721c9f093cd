"""The lab: data sets, backbones, trainers, attacks, measures and experiments, for those who compare methods.

Nothing outside of it imports it. ``pip install 'graphmend[lab]'`` brings what it needs.
"""

INSTALL = "install it with: pip install 'graphmend[lab]'"
"""What to do where a package is missing that only the lab needs."""
