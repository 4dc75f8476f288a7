"""Settings of every kind: their types, checks, texts, descriptions in JSON, and how two descriptions differ.

- `types`: the types of settings. Which values a type allows, how a text becomes one, and how messages describe it.
- `fields`: dataclasses that check their fields, and checks of users' functions and classes.
- `agent`: `AgentConfig`, the base class of agents' configs.
- `values`: values as JSON, with functions and classes by name, and back.
- `assignments`: settings given as text, `name=value`, and configs from their JSON.
- `comparison`: the fields in which two descriptions differ.
"""

from acme_ext.config.agent import AgentConfig as AgentConfig
