# Runs everywhere.
ARCH_scalar := %
FLAGS_scalar :=
