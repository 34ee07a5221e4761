"""A fitted model as an ONNX graph: tables in, predictions out, without muddle."""
