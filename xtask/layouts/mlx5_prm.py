#!/usr/bin/env python3
"""Asks the C headers for every mlx5 hardware layout and number, for uverbs-mlx5-prm's tests.

    mlx5_prm.py [--include DIR]... [--rdma-core DIR] [--out DIR]

--include    where infiniband/mlx5dv.h and what it includes are (libibverbs-dev; default /usr/include)
--rdma-core  providers/mlx5 of an rdma-core source tree, for what no installed header has: wqe.h, cq.c, mlx5.h.
             Without it the tables of these are left alone
--out        where the tables go: layout.tsv and constants.tsv for mlx5dv.h, layout_internal.tsv and
             constants_internal.tsv for what only the source tree has

Which structures, fields and enumerators exist is read from the compiler's debug information, so that
nothing in a header is missed; offsets, sizes and values are then asked of a compiled C program, and
must agree with the debug information. Needs cc and readelf.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

# Structures outside the headers: the name, and the source file that declares it.
FROM_SOURCE = {"mlx5_sigerr_cqe": "cq.c"}
# Enumerators outside wqe.h, and the source file that declares them.
NUMBERS_FROM_SOURCE = {
    "mlx5.h": [
        "MLX5_ADAPTER_PAGE_SIZE", "MLX5_ADAPTER_PAGE_SHIFT", "MLX5_BF_OFFSET", "MLX5_CQ_SET_CI", "MLX5_CQ_ARM_DB",
        "MLX5_SRQ_FLAG_TM_SW_CNT", "MLX5_SRQ_FLAG_TM_CQE_REQ",
    ],
    "mlx5_ifc.h": ["MLX5_EQ_DOORBEL_OFFSET", "MLX5_QPC_ST_RC", "MLX5_QPC_PM_STATE_MIGRATED"],
}
# Structures of these headers that are not called mlx5_*.
EXTRA = {"ibv_rvh", "ibv_tmh"}

ROW = re.compile(r"^\s*<(\d+)><([0-9a-f]+)>: Abbrev Number: \d+ \((DW_TAG_\w+)\)")
ATTRIBUTE = re.compile(r"^\s*<[0-9a-f]+>\s+(DW_AT_\w+)\s*: (.*)$")


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


class Die:
    def __init__(self, tag):
        self.tag, self.at, self.children = tag, {}, []

    @property
    def name(self):
        value = self.at.get("DW_AT_name")
        # "(indirect string, offset: 0x59): name", "(string) name" or "name".
        return value.split()[-1] if value else None

    def number(self, attribute):
        value = self.at.get(attribute)
        # Some versions of readelf print the form first: "(data1) 64".
        return int(value.rsplit(")", 1)[-1].split()[0], 0) if value else None


def dwarf(elf):
    """The debug information of `elf`: entries by offset."""
    dies, stack = {}, []
    for line in run("readelf", "--debug-dump=info", "--wide", str(elf)).splitlines():
        if row := ROW.match(line):
            depth, offset, die = int(row[1]), row[2], Die(row[3])
            dies[offset] = die
            del stack[depth:]
            if stack:
                stack[-1].children.append(die)
            stack.append(die)
        elif stack and (attribute := ATTRIBUTE.match(line)):
            stack[-1].at[attribute[1]] = attribute[2]
    return dies


def resolve(dies, die):
    """The type of `die` without typedefs and qualifiers."""
    while True:
        reference = die.at.get("DW_AT_type")
        if reference is None:
            return None
        die = dies[re.search(r"<0x([0-9a-f]+)>", reference)[1]]
        if die.tag not in ("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type"):
            return die


def fields(dies, struct, base=0, prefix=""):
    """(path, offset) of each member. Members without a name are opened, and so are members whose
    type has no name; these have a row of their own too."""
    for member in struct.children:
        if member.tag != "DW_TAG_member":
            continue
        offset = base + (member.number("DW_AT_data_member_location") or 0)
        kind = resolve(dies, member)
        nested = kind.tag in ("DW_TAG_structure_type", "DW_TAG_union_type")
        if member.name:
            yield prefix + member.name, offset
        if nested and not kind.name:
            inner = prefix + (member.name + "." if member.name else "")
            yield from fields(dies, kind, offset, inner)


def declaration(path, name):
    """The text of `struct name { ... };` in a source file."""
    return re.search(rf"^struct {name} \{{.*?^\}};", path.read_text(), re.S | re.M)[0]


def enumerator(path, name):
    """The text of `name = value` in a source file."""
    return re.search(rf"^\s*({name}\s*=[^,\n]*?),?\s*(?:/\*.*)?$", path.read_text(), re.M)[1]


def tables(head, text, flags):
    """The rows of the layouts and of the constants that `text` names, as the C program of `head` has them."""
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        (work / "types.c").write_text(head)
        run("gcc", "-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types", "-w", *flags,
            "-c", str(work / "types.c"), "-o", str(work / "types.o"))
        dies = dwarf(work / "types.o")

        # The kernel's uapi headers come along; they are not ours to check here.
        ours = set(re.findall(r"\w+", text))
        structs, constants = {}, set()
        for die in dies.values():
            name = die.name or ""
            if die.tag == "DW_TAG_structure_type" and die.number("DW_AT_byte_size") is not None:
                if name in ours and re.match(r"mlx5_", name) or name in EXTRA:
                    structs[name] = list(fields(dies, die))
            if die.tag == "DW_TAG_enumerator" and name in ours and re.match(r"MLX5_", name):
                constants.add(name)
        structs = dict(sorted(structs.items()))

        program = [head, "int main(void) {"]
        for name, rows in structs.items():
            program.append(f'printf("{name}\\t-\\t0\\t%zu\\n", sizeof(struct {name}));')
            for path, _ in rows:
                program.append(
                    f'printf("{name}\\t{path}\\t%zu\\t%zu\\n", offsetof(struct {name}, {path}),'
                    f" sizeof(((struct {name} *)0)->{path}));")
        program.append('puts("");')
        for name in sorted(constants):
            program.append(f'printf("{name}\\t%#llx\\n", (unsigned long long){name});')
        program.append("return 0; }")
        (work / "ask.c").write_text("\n".join(program))
        # Optimized, or the headers' inline functions would want libibverbs.
        run("gcc", "-O1", "-w", *flags, str(work / "ask.c"), "-o", str(work / "ask"))
        layout, numbers = (part.splitlines() for part in run(str(work / "ask")).split("\n\n"))

    told = {tuple(row.split("\t")[:2]): int(row.split("\t")[2]) for row in layout}
    for name, listed in structs.items():
        for path, offset in listed:
            if told[name, path] != offset:
                sys.exit(f"{name}.{path}: program says {told[name, path]}, DWARF {offset}")
    return layout, numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--include", action="append")
    parser.add_argument("--rdma-core", type=pathlib.Path)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=pathlib.Path, default=root / "providers/mlx5-prm/tests/fixtures")
    options = parser.parse_args()

    folders = options.include or ["/usr/include"]
    flags = [f"-I{path}" for path in folders]
    head = "#include <stddef.h>\n#include <stdio.h>\n"
    header = "infiniband/mlx5dv.h"
    text = next(p for p in (pathlib.Path(f, header) for f in folders) if p.is_file()).read_text()
    public = tables(head + f"#include <{header}>\n", text, flags)

    def write(suffix, layout, constants):
        titles = ("layout", "struct\tfield\toffset\tsize", layout), ("constants", "name\tvalue", constants)
        for table, title, rows in titles:
            (options.out / f"{table}{suffix}.tsv").write_text("\n".join([title, *rows]) + "\n")

    write("", *public)
    if not options.rdma_core:
        return

    # In quotes: mlx5dv.h of the same tree.
    head += '#include "wqe.h"\n'
    text = "".join((options.rdma_core / name).read_text() for name in ("mlx5dv.h", "wqe.h"))
    for name, source in FROM_SOURCE.items():
        head += declaration(options.rdma_core / source, name) + "\n"
        text += f" {name}"
    for source, names in NUMBERS_FROM_SOURCE.items():
        lines = [enumerator(options.rdma_core / source, name) for name in names]
        head += "enum { " + ", ".join(lines) + " };\n"
        text += " " + " ".join(names)
    whole = tables(head, text, [f"-I{options.rdma_core}", *flags])
    for some, all_rows in zip(public, whole):
        if lost := [row for row in some if row not in all_rows]:
            sys.exit(f"mlx5dv.h of {folders} and the source tree differ: {lost}")
    write("_internal", *([row for row in rows if row not in some] for some, rows in zip(public, whole)))


if __name__ == "__main__":
    main()
