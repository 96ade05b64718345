"""Networks of tools/golden/exported_nets.py as the exporters of an installed PyTorch write them, with autograd's gradients.

    python3 tools/golden/exported_onnx.py DIR
    PROMPTFED_TEST_EXPORTS=DIR go test -run ForeignExports ./runtime/grad

Writes NET-EXPORTER-OPSET.onnx and NET.safetensors (input x, cotangent c, output y, gradient grad of <c, y>) to DIR. Both
exporters (torchscript, dynamo) are used where this PyTorch has them, with fixed and with open batch. What an exporter itself
cannot write is reported and left out. Tried with PyTorch 1.13 and 2.9.
"""
import collections
import sys
import warnings

import torch
from torch import nn

import checkpoint as ck
import exported_nets

warnings.filterwarnings("ignore")
MODERN = tuple(int(v) for v in torch.__version__.split(".")[:2]) >= (2, 6)


def spread(net):
    """Statistics of batch norms that are not those of a new layer."""
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.uniform_(-0.3, 0.3), m.running_var.uniform_(0.5, 2)
            m.weight.data.uniform_(0.5, 1.5), m.bias.data.uniform_(-0.3, 0.3)
    return net.eval()


def record(folder, name, net, shape):
    x = torch.randn(shape, requires_grad=True)
    y = net(x)
    c = torch.randn(y.shape)
    (y * c).sum().backward()
    ck.write_safetensors(f"{folder}/{name}.safetensors", collections.OrderedDict(
        (k, t.detach().float().contiguous()) for k, t in (("x", x), ("c", c), ("y", y), ("grad", x.grad))))


def exports(net, x, inputs, outputs, axes):
    """Pairs of a label and a function that writes a file."""
    old = dict(input_names=inputs, output_names=outputs)
    for opset in (11, 13, 14, 17) + ((18, 20) if MODERN else ()):
        for fold in (True, False) if opset == 17 else (True,):
            kw = dict(old, opset_version=opset, do_constant_folding=fold, dynamic_axes=axes, **({"dynamo": False} if MODERN else {}))
            yield f"torchscript-{opset}{'' if fold else '-unfolded'}", lambda path, kw=kw: torch.onnx.export(net, x, path, **kw)
    kw = dict(old, opset_version=17, **({"dynamo": False} if MODERN else {}))
    yield "torchscript-17-fixed", lambda path: torch.onnx.export(net, x, path, **kw)
    if not MODERN:
        return
    for opset in (18, 20, 23):
        kw = dict(old, opset_version=opset, dynamo=True, external_data=False, verbose=False)
        dyn = tuple({a: torch.export.Dim.DYNAMIC for a in axes[n]} if n in axes else None for n in inputs)
        yield f"dynamo-{opset}", lambda path, kw=kw, dyn=dyn: torch.onnx.export(net, x, path, dynamic_shapes=dyn, **kw)
    yield "dynamo-18-raw", lambda path: torch.onnx.export(net, x, path, optimize=False, **dict(old, opset_version=18, dynamo=True, external_data=False, verbose=False))


def anonymous(path):
    """Takes out where on this machine the modules' sources lie, which newer exporters write beside every node."""
    import onnx
    m = onnx.load(path)
    for nodes, values in [(m.graph.node, list(m.graph.value_info) + list(m.graph.input) + list(m.graph.output))] + [(f.node, f.value_info) for f in m.functions]:
        for item in list(nodes) + list(values):
            item.ClearField("doc_string"), item.ClearField("metadata_props")
    m.ClearField("metadata_props"), m.graph.ClearField("metadata_props")
    onnx.save(m, path)


def main(folder):
    for name, (make, shape) in exported_nets.nets().items():
        torch.manual_seed(5)
        net = spread(make())
        record(folder, name, net, shape)
        x = torch.randn((3,) + shape[1:])
        for label, write in exports(net, (x,), ["x"], ["y"], {"x": {0: "batch"}, "y": {0: "batch"}}):
            path = f"{folder}/{name}-{torch.__version__[:4].rstrip('.')}-{label}.onnx"
            try:
                with torch.no_grad() if name != "encoder" else torch.enable_grad():
                    write(path)
                if "dynamo" in label:
                    anonymous(path)
            except Exception as e:  # an exporter's own limits
                print(f"{path}: not exported: {str(e).strip().splitlines()[0][:120]}")


if __name__ == "__main__":
    main(sys.argv[1])
