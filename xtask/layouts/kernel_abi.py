#!/usr/bin/env python3
"""Writes kernel-abi/tests/fixtures/*.tsv from the RDMA uapi headers.

    python3 xtask/layouts/kernel_abi.py [--include DIR]... [--verbs-include DIR] [--later-include DIR]
                                        [--later-cm DIR] [--later-kernel DIR] [--out DIR]

--include         where rdma/*.h is (default /usr/include)
--verbs-include   where infiniband/verbs.h is, as libibverbs-dev has it
--later-include   where a later infiniband/verbs.h is
--later-cm        where a later rdma_user_cm.h and ib_user_sa.h are, as in rdma-core's kernel-headers/rdma:
                  layout_later.tsv and constants_uapi_later.tsv are what the first has more
--later-kernel    where later rdma/*.h are: rdma-core's kernel-headers
--out             where the tables go

gcc compiles a file that only includes the headers, and the layouts are read back from its debug information, so no
list of structs is kept here: whatever the headers define is in the fixture, and the Rust side must have it.

  layout.tsv      struct TAB field TAB offset TAB size, and one line with an empty field and offset for the whole
  constants.tsv   NAME TAB value (constants_verbs.tsv: the few that only libibverbs' verbs.h shows;
                  constants_later.tsv: those of them that the verbs.h of --verbs-include lacks)
  functions.tsv   NAME TAB 0 (a function), 1 (one whose body is in verbs.h) or 2 (a macro): what a program of
                  libibverbs calls; functions_later.tsv as constants_later.tsv

How C maps to the rows:
  - a flexible or zero-length array has size 0 and gets no row;
  - a hole the C compiler leaves becomes a row `_pad0`, `_pad1`...;
  - an anonymous union is one row, named after its first member;
  - a named union is one row, and each struct inside it a struct of its own, `<outer>_<member>`;
  - a nested anonymous struct is one row, and a struct of its own, `<outer>_<member>`.
"""

import argparse, pathlib, re, shutil, subprocess, tempfile

HEADERS = [
    "rdma_user_ioctl_cmds.h", "ib_user_ioctl_cmds.h", "ib_user_ioctl_verbs.h", "ib_user_verbs.h", "mlx5-abi.h",
    "mlx5_user_ioctl_cmds.h", "mlx5_user_ioctl_verbs.h", "rdma_netlink.h", "rdma_user_rxe.h", "rdma_user_cm.h",
    "siw-abi.h", "rvt-abi.h",
]
# iWARP port mapper and the path-record service: daemons' protocols, no part of verbs. And a text.
FOREIGN = re.compile(r"SIW_NODE_DESC_COMMON|IWPM_|RDMA_NL_IWPM_|RDMA_NL_LS_|LS_|RDMA_NLA_|rdma_ls_|rdma_nla_")

# Values that cross the boundary although no uapi header names them: the kernel's include/rdma/ib_verbs.h does, and
# libibverbs repeats them under IBV_. The enums to take, and the names that differ by more than the prefix.
VERBS_ENUMS = {
    "ibv_qp_attr_mask", "ibv_qp_state", "ibv_mtu", "ibv_mig_state", "ibv_event_type", "ibv_wc_status", "ibv_send_flags",
    "ibv_wq_state", "ibv_wq_attr_mask", "ibv_mw_type", "ibv_srq_attr_mask", "ibv_port_state", "ibv_atomic_cap",
    "ibv_rereg_mr_flags", "ibv_flow_attr_type", "ibv_flow_spec_type", "ibv_flow_flags", "ibv_counter_description",
}
VERBS_RENAMED = {
    "IBV_WQ_ATTR_STATE": "IB_WQ_STATE", "IBV_WQ_ATTR_CURR_STATE": "IB_WQ_CUR_STATE", "IBV_WQ_ATTR_FLAGS": "IB_WQ_FLAGS",
    "IBV_REREG_MR_CHANGE_TRANSLATION": "IB_MR_REREG_TRANS", "IBV_REREG_MR_CHANGE_PD": "IB_MR_REREG_PD",
    "IBV_REREG_MR_CHANGE_ACCESS": "IB_MR_REREG_ACCESS",
}
# Single names of an enum; the kernel's `ib_wc_flags` numbers its other flags otherwise.
VERBS_NAMES = {"IBV_WC_GRH", "IBV_WC_WITH_IMM"}
# Of the library alone; the kernel has no such value.
VERBS_ONLY = re.compile(r"IBV_FLOW_SPEC_IPV4_EXT|IBV_WC_TM_|IBV_QPS_UNKNOWN|IBV_WQS_UNKNOWN|IBV_WQ_ATTR_RESERVED|IBV_REREG_MR_FLAGS_SUPPORTED")


def debug_entries(source, include):
    """The debug entries of `source` as a dict: offset -> {tag, children, name, ...}."""
    with tempfile.TemporaryDirectory() as tmp:
        c, o = pathlib.Path(tmp, "a.c"), pathlib.Path(tmp, "a.o")
        c.write_text(source)
        subprocess.run(["gcc", *include, "-c", "-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types",
                        "-o", o, c], check=True)
        text = subprocess.run(["readelf", "--wide", "--debug-dump=info", o], check=True, capture_output=True,
                              text=True).stdout
    entries, stack, entry = {}, [], None
    for line in text.splitlines():
        if m := re.match(r" <(\d+)><([0-9a-f]+)>: Abbrev Number: \d+ \(DW_TAG_(\w+)\)", line):
            depth, at, tag = int(m[1]), int(m[2], 16), m[3]
            entry = {"tag": tag, "children": []}
            entries[at] = entry
            del stack[depth:]
            if stack:
                stack[-1]["children"].append(entry)
            stack.append(entry)
        elif m := re.match(r"\s+<[0-9a-f]+>\s+DW_AT_(\w+)\s*:\s*(.*)", line):
            value = re.sub(r"^\([\w]+\)\s*", "", m[2])
            value = re.sub(r"^\(offset: (?:0x)?[0-9a-f]+\):\s*", "", value)
            if m[1] == "type":
                entry["type"] = int(re.match(r"<0x([0-9a-f]+)>", value)[1], 16)
            elif m[1] in ("name",):
                entry["name"] = value.strip()
            elif m[1] in ("byte_size", "data_member_location", "upper_bound", "const_value", "count"):
                entry[m[1]] = int(re.match(r"-?\w+", value)[0], 0)
    return entries


class Types:
    def __init__(self, entries):
        self.entries = entries

    def strip(self, at):
        """The entry behind typedefs and qualifiers."""
        entry = self.entries[at]
        while entry["tag"] in ("typedef", "const_type", "volatile_type"):
            entry = self.entries[entry["type"]]
        return entry

    def size(self, at):
        entry = self.strip(at)
        if entry["tag"] == "array_type":
            size = self.size(entry["type"])
            for dim in entry["children"]:
                size *= dim.get("count", dim.get("upper_bound", -1) + 1)
            return size
        return entry["byte_size"]

    def rows(self, name, entry, out):
        """Appends the rows of struct `name` to `out` (name -> [(field, offset, size, type)])."""
        fields, end, pads = [], 0, 0
        for member in entry["children"]:
            if member["tag"] != "member":
                continue
            size, offset = self.size(member["type"]), member.get("data_member_location", 0)
            if size == 0:
                continue
            inner = self.strip(member["type"])
            field = member.get("name")
            if field is None:
                field = next(c["name"] for c in inner["children"] if "name" in c)
            elif inner["tag"] == "structure_type" and "name" not in inner:
                self.rows(f"{name}_{field}", inner, out)
            elif inner["tag"] == "union_type":
                for variant in inner["children"]:
                    of = self.strip(variant["type"]) if variant["tag"] == "member" else {"tag": ""}
                    if of["tag"] == "structure_type" and "name" not in of:
                        self.rows(f"{inner.get('name', name)}_{variant['name']}", of, out)
            if offset > end:
                fields.append((f"_pad{pads}", end, offset - end, None))
                pads += 1
            fields.append((field, offset, size, member["type"]))
            end = offset + size
        if entry["byte_size"] > end:
            fields.append((f"_pad{pads}", end, entry["byte_size"] - end, None))
        out[name] = (fields, entry["byte_size"])


def verbs_constants(include):
    """The values of infiniband/verbs.h that the kernel takes and gives, by the kernel's names."""
    values = {}
    for entry in debug_entries("#include <infiniband/verbs.h>\n", include).values():
        if entry["tag"] != "enumeration_type":
            continue
        whole = entry.get("name") in VERBS_ENUMS
        for child in entry["children"]:
            name = child["name"]
            if name in VERBS_NAMES or whole and not VERBS_ONLY.match(name):
                values[VERBS_RENAMED.get(name, name.replace("IBV_", "IB_", 1))] = child["const_value"]
    return values


def verbs_functions(include):
    """What infiniband/verbs.h has a program call: its functions, those with a body in it, and macros with arguments."""
    def preprocess(*options):
        return subprocess.run(["gcc", *include, "-E", *options, "-"], input="#include <infiniband/verbs.h>\n", check=True,
                              capture_output=True, text=True).stdout

    # Bodies become a mark, innermost first; what is left of the text is declarations.
    text = preprocess("-P")
    while "{" in text:
        text, count = re.subn(r"\{[^{}]*\}", " @ ", text)
        assert count, "braces that don't match"
    own = re.compile(r"\b((?:ibv_|mult_to_ibv_|mbps_to_ibv_|___?ibv_)\w+)\s*\(([^()]|\([^()]*\))*\)\s*(?:__attribute__\s*\(\(.*?\)\)\s*)?([;@])", re.S)
    functions = {m[1]: 1 if m[3] == "@" else 0 for m in own.finditer(text)}
    for name in re.findall(r"^#define (ibv_\w+)\(", preprocess("-dM"), re.M):
        functions[name] = 2
    # The library's own, behind a macro or a function of the plain name.
    return {name: kind for name, kind in functions.items() if not name.startswith("_")}


# Of commands that later kernels have.
LATER = re.compile("UVERBS_((METHOD|ATTR)_QUERY_PORT_SPEED|(OBJECT|METHOD)_DMABUF|ATTR_ALLOC_DMABUF)|MLX5_IB_(.*_OOO_DP|ATTR_CREATE_CQ_UAR_INDEX)|RDMA_DRIVER_(MANA|IONIC)$|.*_COMP_CNTR|IB_UVERBS_BUFFER_TYPE_")


LATER_STRUCTS = {"ib_uverbs_buffer_desc"}


def kernel_entries(include):
    return debug_entries("#include <rdma/ib_user_ioctl_cmds.h>\n#include <rdma/ib_user_ioctl_verbs.h>\n#include <rdma/mlx5-abi.h>\n#include <rdma/mlx5_user_ioctl_cmds.h>\n", include)


def kernel_constants(include):
    return {entry["name"]: entry["const_value"] for entry in kernel_entries(include).values()
            if entry["tag"] == "enumerator" and LATER.match(entry["name"])}


def kernel_layouts(include):
    types, layouts = Types(kernel_entries(include)), {}
    for entry in types.entries.values():
        if entry["tag"] == "structure_type" and entry.get("name") in LATER_STRUCTS:
            types.rows(entry["name"], entry, layouts)
    return {name: (tuple(row[:3] for row in fields), size) for name, (fields, size) in layouts.items()}


def write_constants(path, values):
    path.write_text("".join(f"{name}\t{value}\n" for name, value in sorted(values.items())))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--include", action="append")
    args.add_argument("--verbs-include")
    args.add_argument("--later-include")
    args.add_argument("--later-cm", type=pathlib.Path)
    args.add_argument("--later-kernel")
    root = pathlib.Path(__file__).resolve().parents[2]
    args.add_argument("--out", type=pathlib.Path, default=root / "kernel-abi/tests/fixtures")
    args = args.parse_args()

    folders = args.include or ["/usr/include"]
    layouts, constants = uapi(folders)
    write_layouts(args.out / "layout.tsv", layouts)
    write_constants(args.out / "constants.tsv", constants)

    if args.later_cm:
        with tempfile.TemporaryDirectory() as tmp:
            # The headers with those in place of theirs.
            later = pathlib.Path(tmp, "rdma")
            home = next(f for f in map(pathlib.Path, folders) if (f / "rdma" / HEADERS[0]).is_file())
            shutil.copytree(home / "rdma", later)
            for header in ["rdma_user_cm.h", "ib_user_sa.h"]:
                shutil.copy(args.later_cm / header, later)
            later_layouts, later_constants = uapi([tmp, *folders])
        assert layouts.items() <= later_layouts.items(), "the later rdma_user_cm.h has other layouts"
        assert constants.items() <= later_constants.items(), "the later rdma_user_cm.h has other values"
        more = {name: rows for name, rows in later_layouts.items() if name not in layouts}
        if args.later_kernel:
            more |= kernel_layouts([f"-I{args.later_kernel}"])
        write_layouts(args.out / "layout_later.tsv", more)
        more = dict(later_constants.items() - constants.items())
        write_constants(args.out / "constants_uapi_later.tsv", more)

    if args.verbs_include:
        include = [f"-I{folder}" for folder in folders]
        values = verbs_constants([f"-I{args.verbs_include}", *include])
        write_constants(args.out / "constants_verbs.tsv", values)
        functions = verbs_functions([f"-I{args.verbs_include}", *include])
        write_constants(args.out / "functions.tsv", functions)
        if args.later_include:
            later = verbs_constants([f"-I{args.later_include}", *include])
            assert values.items() <= later.items(), "the later verbs.h has other values"
            later = dict(later.items() - values.items())
            if args.later_kernel:
                later |= kernel_constants([f"-I{args.later_kernel}"])
            write_constants(args.out / "constants_later.tsv", later)
            later = verbs_functions([f"-I{args.later_include}", *include])
            assert functions.items() <= later.items(), "the later verbs.h has other functions"
            write_constants(args.out / "functions_later.tsv", dict(later.items() - functions.items()))


def write_layouts(path, layouts):
    with open(path, "w") as f:
        for name, (fields, size) in sorted(layouts.items()):
            for field, offset, length in fields:
                print(name, field, offset, length, sep="\t", file=f)
            print(name, "", "", size, sep="\t", file=f)


def uapi(folders):
    """The layouts and constants of the uapi headers, which are in the first of these folders that has them."""
    include = [f"-I{folder}" for folder in folders]
    home = next(f for f in map(pathlib.Path, folders) if (f / "rdma" / HEADERS[0]).is_file())
    text = "\n".join((home / "rdma" / h).read_text() for h in HEADERS)
    # The header's atomic words are plain ones, as rdma-core defines them.
    source = "#define RDMA_ATOMIC_UAPI(_type, _name) _type _name\n"
    source += "".join(f"#include <rdma/{h}>\n" for h in HEADERS)
    types = Types(debug_entries(source, include))

    ours = set(re.findall(r"^struct\s+(\w+)\s*\{", text, re.M))
    words = set(re.findall(r"\w+", text))
    layouts, constants = {}, {}
    for entry in types.entries.values():
        name = entry.get("name", "")
        if entry["tag"] == "structure_type" and name in ours and "byte_size" in entry and not FOREIGN.match(name):
            types.rows(name, entry, layouts)
        if entry["tag"] == "enumerator" and name in words and not FOREIGN.match(name):
            constants[name] = entry["const_value"]

    # A structure that was renamed goes by its former name as well.
    for former, name in re.findall(r"^#define\s+([a-z]\w+)[ \t]+(\w+)[ \t]*$", text, re.M):
        if name in layouts:
            layouts[former] = layouts[name]

    # Nothing may be lost between the headers and here.
    bare = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    names = {n for body in re.findall(r"enum\s+\w*\s*\{(.*?)\}", bare, re.S)
             for n in re.findall(r"(?:^|,)\s*([A-Z]\w+)", body)}
    lost = {n for n in names - constants.keys() | ours - layouts.keys() if not FOREIGN.match(n)}
    assert not lost, f"not in the debug information: {sorted(lost)}"

    # Macros: gcc evaluates them, as enumerators of wide enough type.
    # One in lower case renames a type.
    macros = [m for m in re.findall(r"^#define\s+([A-Z]\w+)[ \t]+\S", text, re.M) if not FOREIGN.match(m)]
    macros = [m for m in macros if m != "RDMA_UAPI_PTR"]
    probe = source + "#include <stdio.h>\nint main(void) {\n"
    probe += "".join(f'  printf("{m}\\t%lld\\n", (long long)({m}));\n' for m in macros) + "}\n"
    with tempfile.TemporaryDirectory() as tmp:
        c, exe = pathlib.Path(tmp, "m.c"), pathlib.Path(tmp, "m")
        c.write_text(probe)
        subprocess.run(["gcc", *include, "-o", exe, c], check=True)
        out = subprocess.run([exe], check=True, capture_output=True, text=True).stdout
    constants |= {n: int(v) for n, v in (line.split("\t") for line in out.splitlines())}

    # Without the types' places in the debug information, which two runs don't share.
    plain = {name: (tuple(row[:3] for row in fields), size) for name, (fields, size) in layouts.items()}
    return plain, constants


if __name__ == "__main__":
    main()
