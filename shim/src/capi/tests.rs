// SPDX-License-Identifier: MIT OR Apache-2.0

//! Holds `weft.h` and this module against each other, and both against
//! `<infiniband/verbs.h>`: a C program that asserts what Rust believes has to
//! compile.

use super::verbs::{self, IbvGid, QpCap, RecvWr, SendWr, Sge, SrqAttr, Wc};
use super::{
    device, vqp, DeviceAttr, Mr, Msg, Mw, NodeAttr, Post, SrqInitAttr, StartAttr, VqpInitAttr,
};
use std::fmt::Write;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;
use weft_core::uapi;

const HEADER: &str = include_str!("../../include/weft.h");
const SOURCES: [&str; 13] = [
    include_str!("completion.rs"),
    include_str!("cq.rs"),
    include_str!("device.rs"),
    include_str!("error.rs"),
    include_str!("mr.rs"),
    include_str!("node.rs"),
    include_str!("peer.rs"),
    include_str!("port.rs"),
    include_str!("post.rs"),
    include_str!("recv.rs"),
    include_str!("srq.rs"),
    include_str!("start.rs"),
    include_str!("vqp.rs"),
];

/// The C names of types in signatures.
const TYPES: [(&str, &str); 38] = [
    ("", "void"),
    ("c_int", "int"),
    ("u16", "uint16_t"),
    ("u32", "uint32_t"),
    ("usize", "size_t"),
    ("*const c_char", "const char *"),
    ("*mut c_void", "void *"),
    ("*mut Device", "struct weft_device *"),
    ("*const Device", "const struct weft_device *"),
    ("*mut DeviceAttr", "struct weft_device_attr *"),
    ("*mut NodeAttr", "struct weft_node_attr *"),
    ("*mut Mr", "struct weft_mr *"),
    ("*const Mr", "const struct weft_mr *"),
    ("*mut Mw", "struct weft_mw *"),
    ("*mut Vqp", "struct weft_vqp *"),
    ("*const Vqp", "const struct weft_vqp *"),
    ("*mut VqpInitAttr", "struct weft_vqp_init_attr *"),
    ("*mut Cq", "struct weft_cq *"),
    ("*const Cq", "const struct weft_cq *"),
    ("*mut Srq", "struct weft_srq *"),
    ("*const Srq", "const struct weft_srq *"),
    ("*mut SrqInitAttr", "struct weft_srq_init_attr *"),
    ("*mut Peer", "struct weft_peer *"),
    ("*const Peer", "const struct weft_peer *"),
    ("*mut Post", "struct weft_post *"),
    ("*const IbvGid", "const union ibv_gid *"),
    ("*mut SendWr", "struct ibv_send_wr *"),
    ("*mut *mut SendWr", "struct ibv_send_wr **"),
    ("*mut RecvWr", "struct ibv_recv_wr *"),
    ("*mut *mut RecvWr", "struct ibv_recv_wr **"),
    ("*mut Msg", "struct weft_msg *"),
    ("*mut Wc", "struct ibv_wc *"),
    ("*mut Sge", "struct ibv_sge *"),
    ("u64", "uint64_t"),
    ("*const StartAttr", "const struct weft_start_attr *"),
    ("*mut *mut Device", "struct weft_device **"),
    ("*mut *mut Cq", "struct weft_cq **"),
    ("*mut *mut Mr", "struct weft_mr **"),
];

fn c_type(rust: &str) -> &'static str {
    let found = TYPES.iter().find(|(name, _)| *name == rust);
    found.unwrap_or_else(|| panic!("no C type for {rust}")).1
}

/// Name and C prototype of every exported function, from the source.
fn prototypes() -> Vec<(String, String)> {
    let text = SOURCES.concat();
    let mut found = Vec::new();
    for part in text.split("#[no_mangle]\n").skip(1) {
        let start = part.find("extern \"C\" fn ").unwrap() + "extern \"C\" fn ".len();
        let signature = &part[start..part.find(" {").unwrap()];
        let (name, rest) = signature.split_once('(').unwrap();
        let (arguments, result) = rest.split_once(')').unwrap();
        let mut types: Vec<_> = arguments
            .split(',')
            .filter_map(|argument| Some(c_type(argument.split_once(':')?.1.trim())))
            .collect();
        if types.is_empty() {
            types.push("void");
        }
        let result = c_type(result.trim_start_matches(" -> ").trim());
        let prototype = format!("{result} {name}({});", types.join(", "));
        found.push((name.to_owned(), prototype));
    }
    found
}

/// Compiles `checks` after the header.
fn compile(compiler: &str, options: &[&str], checks: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = std::env::temp_dir().join(format!(
        "weft-header-{}-{}.c",
        std::process::id(),
        options.concat()
    ));
    std::fs::write(&source, format!("#include \"weft.h\"\n{checks}")).unwrap();
    let output = Command::new(compiler)
        .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(folder.join("include"))
        .args(options)
        .arg(&source)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    std::fs::remove_file(&source).unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
}

/// Asserts the place and size of each field: `rust_field = "c.field"`.
macro_rules! fields {
    ($out:ident, $rust:ty, $c:literal,) => {};
    ($out:ident, $rust:ty, $c:literal, $field:ident = $name:literal, $($rest:tt)*) => {
        writeln!($out, "_Static_assert(offsetof({}, {}) == {}, \"\");", $c, $name, offset_of!($rust, $field)).unwrap();
        writeln!($out, "_Static_assert(sizeof((({} *)0)->{}) == {}, \"\");", $c, $name, size_of_field(|x: &$rust| &raw const x.$field)).unwrap();
        fields!($out, $rust, $c, $($rest)*);
    };
}

fn size_of_field<S, F>(_: impl Fn(&S) -> *const F) -> usize {
    size_of::<F>()
}

fn whole<T>(out: &mut String, c: &str) {
    let (size, align) = (size_of::<T>(), align_of::<T>());
    writeln!(
        out,
        "_Static_assert(sizeof({c}) == {size}, \"size of {c}\");"
    )
    .unwrap();
    writeln!(
        out,
        "_Static_assert(_Alignof({c}) == {align}, \"alignment of {c}\");"
    )
    .unwrap();
}

#[test]
fn the_structs_of_verbs_are_laid_out_as_their_header_says() {
    let mut c = String::new();
    whole::<IbvGid>(&mut c, "union ibv_gid");
    whole::<Sge>(&mut c, "struct ibv_sge");
    whole::<Wc>(&mut c, "struct ibv_wc");
    whole::<RecvWr>(&mut c, "struct ibv_recv_wr");
    whole::<QpCap>(&mut c, "struct ibv_qp_cap");
    whole::<SrqAttr>(&mut c, "struct ibv_srq_attr");
    fields!(
        c,
        SrqAttr,
        "struct ibv_srq_attr",
        max_wr = "max_wr",
        max_sge = "max_sge",
        srq_limit = "srq_limit",
    );
    fields!(
        c,
        Sge,
        "struct ibv_sge",
        addr = "addr",
        length = "length",
        lkey = "lkey",
    );
    fields!(
        c,
        SendWr,
        "struct ibv_send_wr",
        wr_id = "wr_id",
        next = "next",
        sg_list = "sg_list",
        num_sge = "num_sge",
        opcode = "opcode",
        send_flags = "send_flags",
        imm_data = "imm_data",
    );
    fields!(
        c,
        RecvWr,
        "struct ibv_recv_wr",
        wr_id = "wr_id",
        next = "next",
        sg_list = "sg_list",
        num_sge = "num_sge",
    );
    let union = offset_of!(SendWr, wr);
    writeln!(
        c,
        "_Static_assert(offsetof(struct ibv_send_wr, wr) == {union}, \"wr\");"
    )
    .unwrap();
    fields!(
        c,
        verbs::Rdma,
        "__typeof__(((struct ibv_send_wr *)0)->wr.rdma)",
        remote_addr = "remote_addr",
        rkey = "rkey",
    );
    fields!(
        c,
        verbs::Atomic,
        "__typeof__(((struct ibv_send_wr *)0)->wr.atomic)",
        remote_addr = "remote_addr",
        compare_add = "compare_add",
        swap = "swap",
        rkey = "rkey",
    );
    fields!(
        c,
        Wc,
        "struct ibv_wc",
        wr_id = "wr_id",
        status = "status",
        opcode = "opcode",
        vendor_err = "vendor_err",
        byte_len = "byte_len",
        imm_data = "imm_data",
        qp_num = "qp_num",
        src_qp = "src_qp",
        wc_flags = "wc_flags",
        pkey_index = "pkey_index",
        slid = "slid",
        sl = "sl",
        dlid_path_bits = "dlid_path_bits",
    );
    fields!(
        c,
        QpCap,
        "struct ibv_qp_cap",
        max_send_wr = "max_send_wr",
        max_recv_wr = "max_recv_wr",
        max_send_sge = "max_send_sge",
        max_recv_sge = "max_recv_sge",
        max_inline_data = "max_inline_data",
    );
    compile("cc", &["-std=gnu11"], &c);
}

#[test]
fn the_headers_structs_are_laid_out_as_in_rust() {
    let mut c = String::new();
    whole::<DeviceAttr>(&mut c, "struct weft_device_attr");
    whole::<NodeAttr>(&mut c, "struct weft_node_attr");
    whole::<VqpInitAttr>(&mut c, "struct weft_vqp_init_attr");
    whole::<SrqInitAttr>(&mut c, "struct weft_srq_init_attr");
    whole::<Msg>(&mut c, "struct weft_msg");
    whole::<Post>(&mut c, "struct weft_post");
    fields!(
        c,
        Post,
        "struct weft_post",
        vqp = "vqp",
        peer = "peer",
        wr = "wr",
        bad_wr = "bad_wr",
        error = "error",
        reserved = "reserved",
    );
    fields!(
        c,
        SrqInitAttr,
        "struct weft_srq_init_attr",
        size = "size",
        srq_context = "srq_context",
        attr = "attr",
        reserved = "reserved",
    );
    fields!(
        c,
        Msg,
        "struct weft_msg",
        wc = "wc",
        from = "from",
        error = "error",
        reserved = "reserved",
    );
    fields!(
        c,
        DeviceAttr,
        "struct weft_device_attr",
        size = "size",
        gid = "gid",
        max_mr_size = "max_mr_size",
        node = "node",
        node_count = "node_count",
        max_nodes = "max_nodes",
        max_vqp = "max_vqp",
        max_vqp_wr = "max_vqp_wr",
        max_sge = "max_sge",
        max_mr = "max_mr",
        max_msg_sz = "max_msg_sz",
        max_inline_data = "max_inline_data",
        max_recv_wr = "max_recv_wr",
        max_recv_sge = "max_recv_sge",
        max_port = "max_port",
        max_cq = "max_cq",
        max_cqe = "max_cqe",
        max_srq = "max_srq",
        max_srq_wr = "max_srq_wr",
        max_peer = "max_peer",
        max_mw = "max_mw",
    );
    fields!(
        c,
        NodeAttr,
        "struct weft_node_attr",
        size = "size",
        gid = "gid",
        netns = "netns",
        device = "device",
        index = "index",
        port = "port",
        dct_number = "dct_number",
        incarnation = "incarnation",
        udp_port = "udp_port",
        vqps = "vqps",
        mrs = "mrs",
        cached_peers = "cached_peers",
        published = "published",
        reserved = "reserved",
    );
    fields!(
        c,
        VqpInitAttr,
        "struct weft_vqp_init_attr",
        size = "size",
        vqp_context = "vqp_context",
        cq = "cq",
        srq = "srq",
        cap = "cap",
        sq_sig_all = "sq_sig_all",
        flags = "flags",
        port = "port",
        gid = "gid",
    );
    // Behind these C sees nothing.
    fields!(
        c,
        Mr,
        "struct weft_mr",
        addr = "addr",
        length = "length",
        lkey = "lkey",
        rkey = "rkey",
        iova = "iova",
    );
    fields!(c, Mw, "struct weft_mw", rkey = "rkey",);
    whole::<StartAttr>(&mut c, "struct weft_start_attr");
    fields!(
        c,
        StartAttr,
        "struct weft_start_attr",
        size = "size",
        node = "node",
        cqe = "cqe",
        cq_context = "cq_context",
        length = "length",
        access = "access",
        reserved = "reserved",
        gid = "gid",
    );
    compile("cc", &["-std=c11"], &c);
}

#[test]
fn the_numbers_are_those_of_the_headers() {
    let numbers = [
        ("WEFT_ABI_VERSION", device::C_ABI_VERSION),
        ("WEFT_VQP_UNCONNECTED", vqp::UNCONNECTED),
        ("WEFT_MAX_START_MEMORY", uapi::MAX_RING_MEMORY),
        ("IBV_WR_RDMA_WRITE", verbs::WR_RDMA_WRITE),
        ("WEFT_SRC_NONE", uapi::SRC_NONE),
        ("IBV_WR_RDMA_WRITE_WITH_IMM", verbs::WR_RDMA_WRITE_WITH_IMM),
        ("IBV_WR_SEND", verbs::WR_SEND),
        ("IBV_WR_SEND_WITH_IMM", verbs::WR_SEND_WITH_IMM),
        ("IBV_SEND_INLINE", verbs::SEND_INLINE),
        ("IBV_WC_SEND", verbs::WC_SEND),
        ("IBV_WC_RECV", verbs::WC_RECV),
        ("IBV_WC_RECV_RDMA_WITH_IMM", verbs::WC_RECV_RDMA_WITH_IMM),
        ("IBV_WC_WITH_IMM", verbs::WC_WITH_IMM),
        ("IBV_WR_RDMA_READ", verbs::WR_RDMA_READ),
        ("IBV_SEND_FENCE", verbs::SEND_FENCE),
        ("IBV_SEND_SIGNALED", verbs::SEND_SIGNALED),
        ("IBV_SEND_SOLICITED", verbs::SEND_SOLICITED),
        ("IBV_WC_RDMA_WRITE", verbs::WC_RDMA_WRITE),
        ("IBV_WC_RDMA_READ", verbs::WC_RDMA_READ),
        ("IBV_WR_ATOMIC_CMP_AND_SWP", verbs::WR_ATOMIC_CMP_AND_SWP),
        (
            "IBV_WR_ATOMIC_FETCH_AND_ADD",
            verbs::WR_ATOMIC_FETCH_AND_ADD,
        ),
        ("IBV_WC_COMP_SWAP", verbs::WC_COMP_SWAP),
        ("IBV_WC_FETCH_ADD", verbs::WC_FETCH_ADD),
        ("IBV_WC_GENERAL_ERR", verbs::WC_GENERAL_ERR),
        ("IBV_ACCESS_LOCAL_WRITE", uapi::ACCESS_LOCAL_WRITE),
        ("IBV_ACCESS_REMOTE_WRITE", uapi::ACCESS_REMOTE_WRITE),
        ("IBV_ACCESS_REMOTE_READ", uapi::ACCESS_REMOTE_READ),
        ("IBV_ACCESS_REMOTE_ATOMIC", uapi::ACCESS_REMOTE_ATOMIC),
        ("IBV_ACCESS_RELAXED_ORDERING", uapi::ACCESS_RELAXED_ORDERING),
        ("IBV_WC_LOC_PROT_ERR", uapi::WcStatus::LocProtErr as u32),
        ("IBV_WC_WR_FLUSH_ERR", uapi::WcStatus::WrFlushErr as u32),
        ("IBV_WC_REM_ACCESS_ERR", uapi::WcStatus::RemAccessErr as u32),
        ("IBV_WC_LOC_LEN_ERR", uapi::WcStatus::LocLenErr as u32),
        (
            "IBV_WC_RNR_RETRY_EXC_ERR",
            uapi::WcStatus::RnrRetryExcErr as u32,
        ),
        ("IBV_WC_RETRY_EXC_ERR", uapi::WcStatus::RetryExcErr as u32),
        ("IBV_WC_REM_ABORT_ERR", uapi::WcStatus::RemAbortErr as u32),
        ("IBV_WC_FATAL_ERR", uapi::WcStatus::FatalErr as u32),
    ];
    let mut c = String::new();
    for (name, value) in numbers {
        writeln!(
            c,
            "_Static_assert((uint32_t){name} == {value}, \"{name}\");"
        )
        .unwrap();
    }
    compile("cc", &["-std=gnu17"], &c);
}

#[test]
fn every_function_is_declared_as_it_is_defined() {
    let prototypes = prototypes();
    let mut c = String::new();
    for (name, prototype) in &prototypes {
        // The name has to be known before it is declared a second time.
        writeln!(c, "extern __typeof__({name}) {name};\n{prototype}").unwrap();
    }
    compile("cc", &["-std=gnu99"], &c);
    let declared = HEADER
        .split(";\n")
        .filter(|text| text.ends_with(')') && text.contains("weft_"))
        .count();
    assert_eq!(declared, prototypes.len());
}

#[test]
fn a_cpp_program_may_include_the_header() {
    compile("c++", &["-xc++", "-std=c++17"], "");
}

#[test]
fn the_soname_has_the_abis_number() {
    let build = include_str!("../../../scripts/build");
    let soname = format!("-soname,libweft.so.{} ", device::C_ABI_VERSION);
    assert!(build.contains(&soname));
    let install = include_str!("../../../scripts/install-c");
    let name = format!("lib/libweft.so.{}\"", device::C_ABI_VERSION);
    assert!(install.contains(&name));
}
