"""PyTorch's side of promptfed bench --against pytorch: training steps of a prompt and features of images, as an expert writes them by hand.

    python3 tools/golden/step_torch.py DEVICE

DEVICE is cpu or cuda:N. Standard output begins with a line of JSON, {"version": version, "device": name}. Standard input has commands,
each answered with a line, "done" or "failed" and why:

    open TOWER PRECISION THREADS FOLDER   opens a workload on a tower, text or image, in place of the one before
    prepare FORM MODE                     warms up a form of it in a mode
    step FORM MODE                        runs it once, synchronised; the answer is "done" and the seconds
    result FORM MODE FILE                 writes the gradient of the first prompt, or the features, as float32

PRECISION is float32, tf32, float16 or bfloat16 (torch.autocast, with weights of products stored in it). MODE is eager, compiled
(torch.compile, on a GPU with mode="reduce-overhead") or graph (one CUDA graph, captured by hand, of all but the copies from the host).

FOLDER has step.safetensors. A step is one of SGD with momentum. Pixels are in pinned memory of the host and copied in each step, and features
are copied back; all else stays on the device.

text: a step of the text prompts ctx [P,T,w], with start [1,w] and suffix [R,w], the embeddings of the start token and of all classes' own tokens one after the
    other, lengths [C] of these, image [B,D], label [B], scale [1] and heads [1]; text.safetensors has the tower by OpenAI's names. One prompt is
    PromptFL's. Two are FedPHA's shared and private one, with the projector [w,w] of the shared one as a constant: a third prompt is the private
    one times projector. Forms:
    shared      the prefix [start, ctx] of each prompt goes through the tower once for all classes; rows of all classes lie one after the other in
                linear layers, without padding; in the last block only the rows at the end tokens go beyond keys and values
    published   each class is a sequence of as many tokens as the tower has positions
image: a step of the image prompt prompt [P,v], with pixels [B,3,S,S], label [B], texts [C,D] of unit rows, scale [1] and heads [1]; image.safetensors has the
    tower. The prompt's tokens follow those of the patches, behind the first layer norm. With pixels and heads alone: features of images,
    of a transformer or of CLIP's ResNet. Form:
    plain       the tower as published
"""
import contextlib
import gc
import json
import os
import sys
import time

import numpy
import torch
from torch.nn import functional as F


def tensors(path):
    """Reads a safetensors file of float32 and int64."""
    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(size))
        data = numpy.frombuffer(bytearray(f.read()), numpy.uint8)
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            kind = {"F32": numpy.float32, "I64": numpy.int64}[t["dtype"]]
            out[name] = torch.from_numpy(data[begin:end].view(kind).reshape(t["shape"]))
    return out


class Place:
    """A device and a precision; one holds for the whole process."""

    def __init__(self, device="cpu", precision="float32"):
        self.device = torch.device(device)
        self.cuda = self.device.type == "cuda"
        self.kind = getattr(torch, precision) if precision.endswith("float16") else torch.float32
        self.lower, self.fused = precision != "float32", self.cuda
        if self.cuda:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
            torch.backends.cudnn.benchmark = True

    def autocast(self):
        if self.kind == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.kind, cache_enabled=False)

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()


class Tower:
    """The weights of a tower and its residual blocks."""

    def __init__(self, folder, file, prefix, place):
        self.place, self.prefix_of_names = place, prefix
        self.w = {}
        for name, t in tensors(os.path.join(folder, file)).items():
            product = "ln_" not in name and "embedding" not in name
            self.w[name] = t.to(place.device, place.kind if product else torch.float32)
        self.s = {name: t.to(place.device) for name, t in tensors(os.path.join(folder, "step.safetensors")).items()}
        self.heads = int(self.s["heads"])
        blocks = [n[len(prefix):] for n in self.w if n.startswith(prefix + "transformer.")]
        self.layers = 1 + max([int(n.split(".")[2]) for n in blocks], default=-1)

    def block_name(self, i):
        return "%stransformer.resblocks.%d." % (self.prefix_of_names, i)

    def pair(self, name):
        return self.w[name + "weight"], self.w[name + "bias"]

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], *self.pair(name + "."))

    def attend(self, q, k, v, mask=None, causal=False):
        """Attention [..., h, n, d] with a mask to add; causal says that it is the causal one."""
        if self.place.fused:
            return F.scaled_dot_product_attention(q, k, v, None if causal else mask, is_causal=causal)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return torch.softmax(scores if mask is None else scores + mask, -1) @ v

    def feed(self, x, p):
        """The second half of a block."""
        h = F.linear(self.norm(x, p + "ln_2"), *self.pair(p + "mlp.c_fc."))
        return x + F.linear(h * torch.sigmoid(1.702 * h), *self.pair(p + "mlp.c_proj."))

    def split(self, x):
        """[B,n,w] to heads [B,h,n,d]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def full(self, x, i, mask=None):
        """Block i on sequences [B,n,w], with a causal mask or none."""
        p = self.block_name(i)
        q, k, v = map(self.split, F.linear(self.norm(x, p + "ln_1"), *self.pair(p + "attn.in_proj_")).chunk(3, -1))
        rows = self.attend(q, k, v, mask, mask is not None).transpose(1, 2).flatten(2)
        return self.feed(x + F.linear(rows, *self.pair(p + "attn.out_proj.")), p)

    def cross_entropy(self, image, text, label):
        return F.cross_entropy(self.s["scale"] * image @ text.t(), label)


class Text(Tower):
    """A text tower over some classes."""

    def __init__(self, folder, place=Place()):
        super().__init__(folder, "text.safetensors", "", place)
        s, position = self.s, self.w["positional_embedding"]
        self.forms, self.first, self.host = {"shared": self.loss, "published": self.published_loss}, s["ctx"], []
        self.inputs = [s[name] for name in ("image", "label") if name in s]  # simulations have none
        self.prefix, lengths = 1 + s["ctx"].shape[1], s["lengths"].tolist()
        classes, longest, width = len(lengths), max(lengths), position.shape[1]
        self.classes, self.longest, self.equal = classes, longest, min(lengths) == longest
        self.start = s["start"] + position[:1]
        self.ctx_position = position[1:self.prefix]
        self.suffix = s["suffix"] + torch.cat([position[self.prefix:self.prefix + n] for n in lengths])
        # where the packed row of a class's token lies in [classes * longest] padded ones, and the last one of each
        place_of = torch.cat([torch.arange(n) + i * longest for i, n in enumerate(lengths)]).to(place.device)
        self.padded, self.end = place_of, self.prefix + torch.cumsum(s["lengths"], 0) - 1

        def triangle(n):
            return torch.full((n, n), float("-inf"), device=place.device, dtype=place.kind).triu(1)

        self.mask = torch.cat([torch.zeros_like(triangle(longest))[:, :1].expand(-1, self.prefix), triangle(longest)], 1)
        self.end_mask = self.mask[s["lengths"] - 1][:, None, None]
        self.causal = triangle(self.prefix)
        # the published form: what follows the prompt, and where the end tokens lie
        context = len(position)
        rest = torch.zeros(classes * longest, width, device=place.device).index_copy(0, place_of, s["suffix"])
        self.rest = F.pad(rest.view(classes, longest, width), (0, 0, 0, context - self.prefix - longest))
        self.whole = triangle(context)
        self.read = self.prefix + s["lengths"] - 1

    def pad(self, x):
        """Packed rows [P,R,w] to heads of classes [P*C,h,longest,d]."""
        if not self.equal:
            x = x.new_zeros(len(x), self.classes * self.longest, x.shape[2]).index_copy(1, self.padded, x)
        return self.split(x.reshape(len(x) * self.classes, self.longest, -1))

    def for_classes(self, x):
        """Heads of prefixes [P,h,n,d], once for each class [P*C,h,n,d]."""
        return x[:, None].expand(-1, self.classes, -1, -1, -1).flatten(0, 1)

    def block(self, x, i, only_end):
        p, n, w, prompts = self.block_name(i), self.prefix, x.shape[2], len(x)
        h = self.norm(x, p + "ln_1")
        weight, bias = self.pair(p + "attn.in_proj_")
        if only_end:
            k, v = F.linear(h, weight[w:], bias[w:]).split(w, 2)
            q = self.split(F.linear(h.index_select(1, self.end), weight[:w], bias[:w]).reshape(-1, 1, w))
            x, mask = x.index_select(1, self.end), self.end_mask.repeat(prompts, 1, 1, 1)
        else:
            q, k, v = F.linear(h, weight, bias).split(w, 2)
            head = self.attend(*(self.split(t[:, :n]) for t in (q, k, v)), self.causal, True)
            q, mask = self.pad(q[:, n:]), self.mask
        k, v = (torch.cat([self.for_classes(self.split(t[:, :n])), self.pad(t[:, n:])], 2) for t in (k, v))
        rows = self.attend(q, k, v, mask).transpose(1, 2).reshape(prompts, -1, w)
        if not only_end:
            rows = rows if self.equal else rows.index_select(1, self.padded)
            rows = torch.cat([head.transpose(1, 2).reshape(prompts, n, w), rows], 1)
        return self.feed(x + F.linear(rows, *self.pair(p + "attn.out_proj.")), p)

    def text(self, ctx):
        """The unit features [P,C,D] of all classes."""
        start, suffix = (t.expand(len(ctx), -1, -1) for t in (self.start, self.suffix))
        x = torch.cat([start, ctx + self.ctx_position, suffix], 1)
        for i in range(self.layers):
            x = self.block(x, i, i == self.layers - 1)
        return F.normalize(self.norm(x, "ln_final") @ self.w["text_projection"], dim=-1)

    def published(self, ctx):
        """The same, each class by itself."""
        prompts, c = len(ctx), self.classes
        x = torch.cat([self.s["start"].expand(prompts, c, 1, -1), ctx[:, None].expand(-1, c, -1, -1),
                       self.rest.expand(prompts, -1, -1, -1)], 2).flatten(0, 1)
        x = x + self.w["positional_embedding"]
        for i in range(self.layers):
            x = self.full(x, i, self.whole)
        x = self.norm(x, "ln_final")[torch.arange(prompts * c, device=x.device), self.read.repeat(prompts)]
        return F.normalize(x @ self.w["text_projection"], dim=-1).unflatten(0, (prompts, c))

    def scores(self, ctx, image):
        return self.s["scale"] * image @ self.text(ctx)[0].t()

    def of_text(self, text, ctx, image, label):
        if len(ctx) == 1:
            return self.cross_entropy(image, text(ctx)[0], label)
        shared, private, projected = text(torch.cat([ctx, ctx[1:] @ self.s["projector"]]))
        both = self.cross_entropy(image, private, label) + self.cross_entropy(image, shared, label)
        pull = (private - projected).square().sum(-1).mean()
        return both + pull + F.relu(1 - (private - shared).square().sum(-1).add(1e-30).sqrt()).mean()

    def loss(self, ctx, image, label):
        return self.of_text(self.text, ctx, image, label)

    def published_loss(self, ctx, image, label):
        return self.of_text(self.published, ctx, image, label)


class Image(Tower):
    """An image tower: a transformer or CLIP's ResNet, whose normalisations are part of its convolutions."""

    def __init__(self, folder, place):
        super().__init__(folder, "image.safetensors", "visual.", place)
        self.first, self.inputs = self.s.get("prompt"), [self.s["pixels"]]
        self.host = [(self.s["pixels"], pinned(self.s["pixels"], place))]
        self.forms = {"plain": self.features}
        if self.first is not None:
            self.inputs.append(self.s["label"])
            self.forms = {"plain": self.loss}
        elif place.cuda and place.lower and not self.layers:
            for name, t in self.w.items():
                if t.dim() == 4:
                    self.w[name] = t.to(memory_format=torch.channels_last)

    def features(self, pixels, prompt=None):
        if not self.layers:
            return self.resnet(pixels)
        conv = self.w["visual.conv1.weight"]
        x = F.conv2d(pixels, conv, stride=conv.shape[-1]).flatten(2).transpose(1, 2)
        x = torch.cat([self.w["visual.class_embedding"].expand(len(x), 1, -1), x], 1) + self.w["visual.positional_embedding"]
        x = self.norm(x, "visual.ln_pre")
        if prompt is not None:
            x = torch.cat([x, prompt.expand(len(x), -1, -1)], 1)
        for i in range(self.layers):
            x = self.full(x, i)
        return self.norm(x[:, 0], "visual.ln_post") @ self.w["visual.proj"]

    def resnet(self, x):
        def conv(x, name, stride=1):
            weight, bias = self.pair("visual." + name + ".")
            return F.conv2d(x, weight, bias, stride, weight.shape[-1] // 2)

        if self.place.cuda and self.place.lower:
            x = x.to(memory_format=torch.channels_last)
        x = F.relu(conv(F.relu(conv(F.relu(conv(x, "conv1", 2)), "conv2")), "conv3"))
        x = F.avg_pool2d(x, 2)
        for stage in range(1, 5):
            b = 0
            while "visual.layer%d.%d.conv1.weight" % (stage, b) in self.w:
                p = "layer%d.%d." % (stage, b)
                y = F.relu(conv(F.relu(conv(x, p + "conv1")), p + "conv2"))
                if b == 0 and stage > 1:
                    x, y = F.avg_pool2d(x, 2), F.avg_pool2d(y, 2)
                x = F.relu(conv(y, p + "conv3") + (conv(x, p + "downsample.0") if b == 0 else x))
                b += 1
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([x.mean(1, keepdim=True), x], 1) + self.w["visual.attnpool.positional_embedding"]
        q, k, v = (self.split(F.linear(rows, *self.pair("visual.attnpool.%s_proj." % name)))
                   for name, rows in (("q", x[:, :1]), ("k", x), ("v", x)))
        return F.linear(self.attend(q, k, v).transpose(1, 2).flatten(1), *self.pair("visual.attnpool.c_proj."))

    def loss(self, prompt, pixels, label):
        return self.cross_entropy(F.normalize(self.features(pixels, prompt)), self.s["texts"], label)


def pinned(t, place):
    t = t.cpu()
    return t.pin_memory() if place.cuda else t


class Job:
    """A form of a workload in a mode."""

    def __init__(self, work, form, mode):
        self.work, self.place, self.form = work, work.place, work.forms[form]
        if work.first is not None:
            self.prompt = work.first.clone().requires_grad_()
            self.optimizer = torch.optim.SGD([self.prompt], lr=0.002, momentum=0.9, weight_decay=5e-4)
        if mode == "compiled":
            for t in [*work.w.values(), *work.s.values(), *(v for v in vars(work).values() if torch.is_tensor(v))]:
                torch._dynamo.mark_static_address(t)
            if self.place.cuda:
                self.form = torch.compile(self.form, mode="reduce-overhead", dynamic=False)
            else:
                self.form = torch.compile(self.form)
        self.replay = None
        if mode == "graph":
            self.capture()
        for _ in range(4 if mode == "compiled" else 2):
            self.step()

    def capture(self):
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self.compute()
        torch.cuda.current_stream().wait_stream(aside)
        self.place.wait()
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.compute()
        self.replay = graph.replay

    def compute(self):
        if self.work.first is None:
            with torch.no_grad(), self.place.autocast():
                self.out = self.form(*self.work.inputs)
            return
        self.optimizer.zero_grad(set_to_none=True)
        with self.place.autocast():
            loss = self.form(self.prompt, *self.work.inputs)
        loss.backward()
        self.optimizer.step()

    def step(self):
        """The seconds of a step."""
        began = time.perf_counter()
        for there, here in self.work.host:
            there.copy_(here, non_blocking=True)
        (self.replay or self.compute)()
        if self.work.first is None:
            self.features = self.out.float().cpu()
        self.place.wait()
        return time.perf_counter() - began

    def result(self):
        if self.work.first is None:
            self.step()
            return self.features
        with torch.no_grad():
            self.prompt.copy_(self.work.first)
        self.step()
        return self.prompt.grad


def answer(device, jobs, line):
    verb, rest = line.rstrip("\n").split(" ", 1)
    if verb == "open":
        tower, precision, threads, folder = rest.split(" ", 3)
        torch.set_num_threads(int(threads))
        jobs.clear()
        if hasattr(torch, "_dynamo"):
            torch._dynamo.reset()
        gc.collect()
        place = Place(device, precision)
        if place.cuda:
            torch.cuda.empty_cache()
        jobs["work"] = {"text": Text, "image": Image}[tower](folder, place)
        return ""
    form, mode, *file = rest.split(" ", 2)
    if verb == "prepare":
        if mode == "compiled" and not hasattr(torch, "compile"):
            raise ValueError("PyTorch %s has no torch.compile" % torch.__version__)
        if mode == "graph" and device == "cpu":
            raise ValueError("a CUDA graph needs a CUDA device")
        jobs[form, mode] = Job(jobs["work"], form, mode)
        return ""
    if verb == "step":
        return " %.9f" % jobs[form, mode].step()
    jobs[form, mode].result().detach().float().cpu().numpy().astype("<f4").tofile(file[0])
    return ""


def main():
    device = sys.argv[1]
    to = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what compilers print does not reach the answers
    torch.manual_seed(1)
    name = "cpu"
    if device != "cpu":
        if not torch.cuda.is_available():
            sys.exit("PyTorch %s finds no CUDA device" % torch.__version__)
        torch.cuda.set_device(device)
        name = torch.cuda.get_device_name()
    print(json.dumps({"version": torch.__version__, "device": name}), file=to)
    jobs = {}
    for line in sys.stdin:
        try:
            said = "done" + answer(device, jobs, line)
        except Exception as e:
            said = "failed %s: %s" % (type(e).__name__, str(e).strip().split("\n")[0][:200])
        print(said, file=to)


if __name__ == "__main__":
    main()
