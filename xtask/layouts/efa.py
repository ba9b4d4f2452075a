#!/usr/bin/env python3
"""Writes kernel-abi/tests/fixtures/{layout,constants}_efa.tsv from a source tree of rdma-core.

    python3 xtask/layouts/efa.py RDMA_CORE [--out DIR]

The headers are kernel-headers/rdma/efa-abi.h and providers/efa/efa_io_defs.h. No package has the second one, and
Debian's linux-libc-dev has an older version of the first. The rules are those of kernel_abi.py.
"""

import argparse, pathlib, re, subprocess, tempfile

import kernel_abi

# rdma-core's util/util.h.
MACROS = "#define BIT(n) (1UL << (n))\n#define GENMASK(h, l) (((1UL << ((h) - (l) + 1)) - 1) << (l))\n"


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("rdma_core", type=pathlib.Path)
    root = pathlib.Path(__file__).resolve().parents[2]
    args.add_argument("--out", type=pathlib.Path, default=root / "kernel-abi/tests/fixtures")
    args = args.parse_args()

    headers = [args.rdma_core / "kernel-headers/rdma/efa-abi.h", args.rdma_core / "providers/efa/efa_io_defs.h"]
    include = [f"-I{args.rdma_core / 'kernel-headers'}", "-I/usr/include"]
    source = "#include <stdint.h>\n" + MACROS + "".join(f'#include "{header.resolve()}"\n' for header in headers)
    text = "\n".join(header.read_text() for header in headers)
    types = kernel_abi.Types(kernel_abi.debug_entries(source, include))
    ours, words = set(re.findall(r"^struct\s+(\w+)\s*\{", text, re.M)), set(re.findall(r"\w+", text))
    layouts, constants = {}, {}
    for entry in types.entries.values():
        name = entry.get("name", "")
        if entry["tag"] == "structure_type" and name in ours:
            types.rows(name, entry, layouts)
        if entry["tag"] == "enumerator" and name in words and name.startswith("EFA_"):
            constants[name] = entry["const_value"]
    assert ours == layouts.keys(), ours ^ layouts.keys()
    macros = re.findall(r"^#define\s+(EFA_\w+)[ \t]+\S", text, re.M)
    probe = source + "#include <stdio.h>\nint main(void) {\n"
    probe += "".join(f'  printf("{m}\\t%lld\\n", (long long)({m}));\n' for m in macros) + "}\n"
    with tempfile.TemporaryDirectory() as tmp:
        c, exe = pathlib.Path(tmp, "m.c"), pathlib.Path(tmp, "m")
        c.write_text(probe)
        subprocess.run(["gcc", *include, "-o", exe, c], check=True)
        out = subprocess.run([exe], check=True, capture_output=True, text=True).stdout
    constants |= {n: int(v) for n, v in (line.split("\t") for line in out.splitlines())}
    plain = {name: ([row[:3] for row in fields], size) for name, (fields, size) in layouts.items()}
    kernel_abi.write_layouts(args.out / "layout_efa.tsv", plain)
    kernel_abi.write_constants(args.out / "constants_efa.tsv", constants)


if __name__ == "__main__":
    main()
