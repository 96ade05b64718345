"""Small golden files of federation/data/sets: Parquet files as pyarrow writes them in the form of Hugging Face data sets.

Run from the module root with pyarrow and Pillow: python tools/golden/parquet.py

Image i of every file is 2x2 pixels of the colour (10 i, 200, 7). The files of FORMS hold the same seven rows.
"""
import io
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

OUT = "federation/data/sets/testdata/parquet"
os.makedirs(OUT, exist_ok=True)


def png(i):
    out = io.BytesIO()
    Image.new("RGB", (2, 2), (10 * i, 200, 7)).save(out, "PNG")
    return out.getvalue()


def image_type():
    return pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def features(**names):
    """The metadata that Hugging Face's library leaves in a file."""
    all_ = {"image": {"_type": "Image"}}
    for k, v in names.items():
        all_[k] = {"names": v, "_type": "ClassLabel"} if v else {"dtype": "string", "_type": "Value"}
    return {b"huggingface": json.dumps({"info": {"features": all_}}).encode()}


def table(rows, columns, metadata=None):
    arrays = {"image": pa.array([{"bytes": png(i), "path": f"{i}.png"} for i in rows], type=image_type())}
    arrays.update(columns)
    t = pa.table(arrays)
    return t.replace_schema_metadata(metadata) if metadata else t


LABELS = [2, 0, 1, 2, 0, 1, 0]
t = table(range(7), {"label": pa.array(LABELS, type=pa.int64())}, features(label=["apple_pie", "zebra", "Ant"]))

FORMS = {
    "none": dict(compression="none"),
    "snappy": dict(compression="snappy"),
    "gzip": dict(compression="gzip"),
    "zstd": dict(compression="zstd"),
    "plain": dict(compression="snappy", use_dictionary=False),
    "v2": dict(compression="snappy", data_page_version="2.0", use_dictionary=False),
    "v2none": dict(compression="none", data_page_version="2.0"),
    "pages": dict(compression="none", use_dictionary=False, data_page_size=1, write_batch_size=1),
    "delta": dict(compression="none", use_dictionary=False, column_encoding={"label": "DELTA_BINARY_PACKED", "image.bytes": "DELTA_LENGTH_BYTE_ARRAY"}),
    "index": dict(compression="snappy", write_page_index=True),
}
for name, how in FORMS.items():
    pq.write_table(t, f"{OUT}/{name}.parquet", row_group_size=4, **how)
for name in ["brotli", "lz4"]:
    pq.write_table(t.slice(0, 1), f"{OUT}/{name}.parquet", compression=name)

# Text for labels and domains; images as plain binary; a missing image in row 1.
words = pa.table({
    "img": pa.array([png(0), None, png(2), png(3)], type=pa.binary()),
    "label": ["b_c", "a", "b_c", "a"],
    "domain": ["sketch", "photo", "photo", "sketch"],
})
pq.write_table(words, f"{OUT}/words.parquet")

# int32 labels without names, -1 for none, and a domain that is a class label.
numbers = table(range(4), {"fine_label": pa.array([7, 3, 3, 7], type=pa.int32()), "coarse_label": pa.array([1, 0, 0, 1], type=pa.int64()),
                           "domain": pa.array([1, 0, 1, 0], type=pa.int64())}, features(domain=["art", "real"]))
pq.write_table(numbers, f"{OUT}/numbers.parquet")
pq.write_table(table(range(2), {"label": pa.array([-1, -1], type=pa.int64())}), f"{OUT}/unlabelled.parquet")
pq.write_table(table(range(2), {"label": pa.array([0, None], type=pa.int64())}), f"{OUT}/null.parquet")
pq.write_table(pa.table({"text": ["a"], "label": [1]}), f"{OUT}/noimage.parquet")
pq.write_table(pa.table({"image": pa.array([[png(0)]], type=pa.list_(pa.binary())), "label": [1]}), f"{OUT}/lists.parquet")
