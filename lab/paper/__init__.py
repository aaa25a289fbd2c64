"""The paper as data: its tables, its models, the plan that reproduces it, and what its tables alone can tell.

Ge et al., Capability Salience Vector: Fine-grained Alignment of Loss and Capabilities for Downstream
Task Scaling Law, ACL 2025.
"""
