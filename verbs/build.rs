// SPDX-License-Identifier: MIT OR Apache-2.0

//! Generates the raw bindings of libibverbs and librdmacm.
//!
//! `rdma-sys` 0.3.0 was the first choice. Its bindgen (0.59) panics on the
//! names that clang 16 and later give to anonymous unions, so it does not build
//! on Debian 13, and no later release exists. The bindings are therefore made
//! here, from the headers of the system that the program will run on, by a
//! bindgen that is kept up. Verbs that the headers define as static inlines
//! (`ibv_post_send`, `ibv_poll_cq`, `ibv_query_gid_table`, ...) get a C wrapper,
//! so that no line of them is rewritten by hand.

use std::env;
use std::path::PathBuf;

/// What the crate calls. Their types come along by themselves.
const FUNCTIONS: &str = "ibv_(get_device_list|free_device_list|get_device_name|open_device\
|close_device|query_gid_table|alloc_pd|dealloc_pd|reg_mr|dereg_mr\
|create_comp_channel|destroy_comp_channel|create_cq|destroy_cq|poll_cq|req_notify_cq\
|get_cq_event|ack_cq_events|create_srq|destroy_srq|post_srq_recv|create_qp|create_qp_ex|modify_qp\
|destroy_qp|query_qp|post_send|qp_to_qp_ex|query_device_ex|wc_status_str)\
|___ibv_query_port\
|ibv_wr_(start|rdma_write|rdma_read|send|atomic_write|atomic_cmp_swp|atomic_fetch_add|set_sge\
|set_inline_data|complete|abort)\
|rdma_(create_event_channel|destroy_event_channel|get_cm_event|ack_cm_event|create_id\
|destroy_id|bind_addr|listen|get_devices|free_devices|create_qp|destroy_qp|accept|connect\
|disconnect|resolve_addr|resolve_route)";

fn main() {
    println!("cargo:rerun-if-changed=src/sys.h");
    let mut includes = Vec::new();
    for (library, package) in [
        ("libibverbs", "libibverbs-dev"),
        ("librdmacm", "librdmacm-dev"),
    ] {
        match pkg_config::Config::new()
            .atleast_version("1.2")
            .probe(library)
        {
            Ok(found) => includes.extend(found.include_paths),
            Err(error) => {
                panic!("{library} was not found: install the package {package}.\n{error}")
            }
        }
    }

    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let wrappers = out.join("inline.c");
    bindgen::Builder::default()
        .header("src/sys.h")
        .clang_args(includes.iter().map(|dir| format!("-I{}", dir.display())))
        .allowlist_function(FUNCTIONS)
        .allowlist_type(
            "ibv_(access|qp_attr_mask|qp_init_attr_mask|qp_create_send_ops_flags|send|wc|gid_type|mtu\
             |wr_opcode|qp_state|qp_type).*",
        )
        .allowlist_type("rdma_(cm_event_type|port_space)")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate_comments(false)
        .derive_default(true)
        .wrap_static_fns(true)
        .wrap_static_fns_path(&wrappers)
        .generate()
        .expect("bindgen says above which header it could not read")
        .write_to_file(out.join("sys.rs"))
        .expect("OUT_DIR is writable");

    cc::Build::new()
        .file(&wrappers)
        .include(".")
        .includes(&includes)
        .opt_level(2)
        .warnings(false)
        .compile("weft-verbs-inline");
}
