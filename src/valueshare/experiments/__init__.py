"""The experiments as data, and running them: tabular studies, training presets, LunarLander."""
