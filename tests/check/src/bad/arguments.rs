// SPDX-License-Identifier: MIT OR Apache-2.0

//! Arguments that are there but make no sense.

use anyhow::{ensure, Result};
use nix::errno::Errno;
use weft_core::gid::Gid;
use weft_core::uapi::{self, Pod, ABI_VERSION, MAX_SEND_WR, NODE_ANY};

use super::{expect, refused};
use crate::raw::{vqp_on, Memory, Session};
use crate::world::gid;
use weft_testkit::report::Report;

/// Every request that needs a session, with the size of its argument.
pub const REQUESTS: [(&str, u32); 25] = [
    ("NODE", uapi::IOC_NODE),
    ("VQP_CREATE", uapi::IOC_VQP_CREATE),
    ("VQP_DESTROY", uapi::IOC_VQP_DESTROY),
    ("QCONNECT", uapi::IOC_QCONNECT),
    ("MR_REG", uapi::IOC_MR_REG),
    ("MR_DEREG", uapi::IOC_MR_DEREG),
    ("MW_BIND", uapi::IOC_MW_BIND),
    ("ENTER", uapi::IOC_ENTER),
    ("META_ADD", uapi::IOC_META_ADD),
    ("META_REMOVE", uapi::IOC_META_REMOVE),
    ("META", uapi::IOC_META),
    ("DCCACHE_FLUSH", uapi::IOC_DCCACHE_FLUSH),
    ("LOOKUP", uapi::IOC_LOOKUP),
    ("QBIND", uapi::IOC_QBIND),
    ("ACCEPT", uapi::IOC_ACCEPT),
    ("POOL_PIN", uapi::IOC_POOL_PIN),
    ("POOL_UNPIN", uapi::IOC_POOL_UNPIN),
    ("RUN", uapi::IOC_RUN),
    ("RINGS_CREATE", uapi::IOC_RINGS_CREATE),
    ("RINGS_DESTROY", uapi::IOC_RINGS_DESTROY),
    ("PEER_OPEN", uapi::IOC_PEER_OPEN),
    ("PEER_CLOSE", uapi::IOC_PEER_CLOSE),
    ("CQ_NOTIFY", uapi::IOC_CQ_NOTIFY),
    ("POOL_USE", uapi::IOC_POOL_USE),
    ("POOL_PEER", uapi::IOC_POOL_PEER),
];

/// Sessions that do not come about, and requests that do not exist.
pub fn handshake(report: &mut Report) -> Result<()> {
    let page = Memory::map(4096)?;
    let bare = Session::bare()?;
    for (name, request) in REQUESTS {
        refused(
            report,
            &format!("{name} before HELLO"),
            Errno::EPROTO,
            || bare.call_at(request, page.addr()),
        );
    }
    let hello = |hello: uapi::Hello| bare.call(uapi::IOC_HELLO, &mut { hello });
    let good = uapi::Hello {
        abi_version: ABI_VERSION,
        node: NODE_ANY,
        ..Pod::zeroed()
    };
    for abi_version in [0, ABI_VERSION - 1, ABI_VERSION + 1, u32::MAX] {
        let other = uapi::Hello {
            abi_version,
            ..good
        };
        refused(
            report,
            &format!("ABI version {abi_version}"),
            Errno::EPROTONOSUPPORT,
            || hello(other),
        );
    }
    for node in [2, 63, 64, u32::MAX - 1] {
        refused(report, &format!("node {node}"), Errno::ENODEV, || {
            hello(uapi::Hello { node, ..good })
        });
    }
    report.check("after all that HELLO works", || Ok(hello(good)?));
    refused(report, "HELLO again", Errno::EALREADY, || hello(good));

    // A wrong number, direction, size, type.
    let wrong = [
        0x5763,
        0x5701,
        0xc00c_5701,
        0xc041_5708,
        0xc010_5801,
        0x5401,
        0,
        u32::MAX,
    ];
    for request in wrong {
        refused(
            report,
            &format!("unknown request {request:#x}"),
            Errno::ENOTTY,
            || bare.call_at(request, page.addr()),
        );
    }
    Ok(())
}

/// Handles and values.
pub fn handles(report: &mut Report) -> Result<()> {
    let session = Session::open(0)?;
    for handle in [0, 255, 256, u32::MAX] {
        refused(
            report,
            &format!("destroying VQP {handle}"),
            Errno::EBADF,
            || session.destroy_vqp(handle),
        );
        refused(
            report,
            &format!("connecting VQP {handle}"),
            Errno::EBADF,
            || session.qconnect(handle, gid(1)),
        );
        refused(
            report,
            &format!("entering rings {handle}"),
            Errno::EBADF,
            || session.enter_rings(handle, 0, 0, 0),
        );
    }
    for lkey in [0, 1, u32::MAX] {
        refused(
            report,
            &format!("deregistering {lkey}"),
            Errno::ENOENT,
            || session.deregister(lkey),
        );
    }
    for capacity in [0, MAX_SEND_WR + 1, u32::MAX] {
        refused(
            report,
            &format!("a VQP of {capacity}"),
            Errno::EINVAL,
            || session.create_vqp(capacity),
        );
    }
    for index in [2, 64, u32::MAX] {
        refused(
            report,
            &format!("describing node {index}"),
            Errno::ENODEV,
            || {
                session.call(
                    uapi::IOC_NODE,
                    &mut uapi::NodeInfo {
                        index,
                        ..Pod::zeroed()
                    },
                )
            },
        );
        refused(
            report,
            &format!("describing meta server {index}"),
            Errno::ENOENT,
            || {
                session.call(
                    uapi::IOC_META,
                    &mut uapi::MetaInfo {
                        index,
                        ..Pod::zeroed()
                    },
                )
            },
        );
    }
    foreign(report)?;
    pins(report, &session);
    peers(report, &session)
}

/// Nodes that no RC queue pair can be kept to, or is.
fn pins(report: &mut Report, session: &Session) {
    let mut wide = [0; 16];
    wide[0] = 0xfd;
    let pin = |request, gid| session.call(request, &mut uapi::PoolPin { gid, reserved: 0 });
    for (name, gid) in [
        ("the zero GID", Gid([0; 16])),
        ("fd00::", Gid(wide)),
        ("the node itself", gid(0)),
    ] {
        refused(report, &format!("pinning {name}"), Errno::EINVAL, || {
            pin(uapi::IOC_POOL_PIN, gid)
        });
        refused(report, &format!("unpinning {name}"), Errno::ENOENT, || {
            pin(uapi::IOC_POOL_UNPIN, gid)
        });
        refused(
            report,
            &format!("choosing a way to {name}"),
            Errno::EINVAL,
            || pin(uapi::IOC_POOL_USE, gid),
        );
    }
    for (name, transport, reserved) in [
        ("POOL_USE of a transport that there is not", 3, 0),
        ("POOL_USE with a reserved field", 0, 1),
    ] {
        refused(report, name, Errno::EINVAL, || {
            let gid = gid(1);
            session.call(
                uapi::IOC_POOL_USE,
                &mut uapi::PoolUse {
                    gid,
                    transport,
                    reserved,
                },
            )
        });
    }
    for index in [1000, u32::MAX] {
        let name = format!("POOL_PEER of peer {index}");
        refused(report, &name, Errno::ENOENT, || {
            let mut peer = uapi::PoolPeer {
                index,
                ..Pod::zeroed()
            };
            session.call(uapi::IOC_POOL_PEER, &mut peer)
        });
    }
}

/// Names that are another session's.
fn foreign(report: &mut Report) -> Result<()> {
    let (one, two) = (Session::open(0)?, Session::open(0)?);
    let page = Memory::map(4096)?;
    let lkey = one.register(&page, 0, 4096, 1)?.lkey;
    let vqp = one.create_vqp(4)?;
    refused(report, "another session's region", Errno::ENOENT, || {
        two.deregister(lkey)
    });
    refused(report, "another session's VQP", Errno::EBADF, || {
        two.destroy_vqp(vqp)
    });
    report.check("they are still there", || {
        one.deregister(lkey)?;
        Ok(one.destroy_vqp(vqp)?)
    });
    refused(report, "a region that has gone", Errno::ENOENT, || {
        one.deregister(lkey)
    });
    refused(report, "a VQP that has gone", Errno::EBADF, || {
        one.destroy_vqp(vqp)
    });
    Ok(())
}

/// Nodes that are nowhere.
fn peers(report: &mut Report, session: &Session) -> Result<()> {
    let queue = session.queue(4, 0)?;
    let vqp = queue.vqp;
    let look_up = |gid| {
        session.call(
            uapi::IOC_LOOKUP,
            &mut uapi::Lookup {
                gid,
                ..Pod::zeroed()
            },
        )
    };
    let mut wide = [0; 16];
    wide[0] = 0xfd;
    let unknown = [
        ("10.77.0.99", Gid::from_ipv4([10, 77, 0, 99])),
        ("fd00::", Gid(wide)),
    ];
    refused(report, "connecting to the zero GID", Errno::EINVAL, || {
        session.qconnect(vqp, Gid([0; 16]))
    });
    refused(report, "looking the zero GID up", Errno::EINVAL, || {
        look_up(Gid([0; 16]))
    });
    for (name, gid) in unknown {
        refused(
            report,
            &format!("connecting to {name}"),
            Errno::EHOSTUNREACH,
            || session.qconnect(vqp, gid),
        );
        refused(
            report,
            &format!("looking {name} up"),
            Errno::EHOSTUNREACH,
            || look_up(gid),
        );
    }
    refused(
        report,
        "a request before connecting",
        Errno::ENOTCONN,
        || queue.enter(session, &[uapi::SendWr::zeroed()], &mut [], 0, 0),
    );
    refused(report, "a request of no VQP", Errno::EBADF, || {
        queue.put_any(0, &uapi::SendWr::zeroed());
        session.enter(vqp, 1, 0, 0)
    });
    report.check("then it connects", || Ok(session.qconnect(vqp, gid(1))?));
    refused(report, "connecting twice", Errno::EISCONN, || {
        session.qconnect(vqp, gid(1))
    });
    Ok(())
}

/// What must be zero is not.
pub fn reserved(report: &mut Report) -> Result<()> {
    let session = Session::open(0)?;
    let bare = Session::bare()?;
    let page = Memory::map(4096)?;
    let vqp = session.create_vqp(4)?;
    let rings = session.create_rings(4, 0)?;
    let lkey = session.register(&page, 0, 4096, 1)?.lkey;
    let einval = Errno::EINVAL;
    refused(report, "HELLO with a reserved field", einval, || {
        let hello = uapi::Hello {
            abi_version: ABI_VERSION,
            node: 0,
            reserved: 1,
            ..Pod::zeroed()
        };
        bare.call(uapi::IOC_HELLO, &mut { hello })
    });
    refused(report, "VQP_CREATE with a reserved field", einval, || {
        let arg = uapi::VqpCreate {
            reserved: [0, 0, 0, 0, 0, 1],
            ..vqp_on(&rings)
        };
        session.call(uapi::IOC_VQP_CREATE, &mut { arg })
    });
    refused(report, "QCONNECT with a reserved field", einval, || {
        let arg = uapi::QConnect {
            vqp,
            gid: gid(1),
            reserved: 1,
            ..Pod::zeroed()
        };
        session.call(uapi::IOC_QCONNECT, &mut { arg })
    });
    refused(report, "MR_REG with a reserved field", einval, || {
        let arg = uapi::MrReg {
            addr: page.addr(),
            len: 1,
            reserved: 1,
            ..Pod::zeroed()
        };
        session.call(uapi::IOC_MR_REG, &mut { arg })
    });
    refused(report, "MW_BIND with a reserved field", einval, || {
        let arg = uapi::MwBind {
            addr: page.addr(),
            len: 1,
            lkey,
            access: uapi::ACCESS_REMOTE_READ,
            reserved: 1,
            ..Pod::zeroed()
        };
        session.call(uapi::IOC_MW_BIND, &mut { arg })
    });
    refused(report, "ENTER with a reserved field", einval, || {
        session.call(
            uapi::IOC_ENTER,
            &mut uapi::Enter {
                sq: rings.rings,
                cq: rings.rings,
                reserved: 1,
                ..Pod::zeroed()
            },
        )
    });
    refused(report, "RINGS_CREATE with a reserved field", einval, || {
        let arg = uapi::RingsCreate {
            max_wc: 1,
            reserved: 1,
            ..Pod::zeroed()
        };
        session.call(uapi::IOC_RINGS_CREATE, &mut { arg })
    });
    refused(report, "PEER_OPEN with a reserved field", einval, || {
        let arg = uapi::PeerOpen {
            gid: gid(1),
            reserved: 1,
            ..Pod::zeroed()
        };
        session.call(uapi::IOC_PEER_OPEN, &mut { arg })
    });
    report.check(
        "RINGS_DESTROY with a reserved field: EINVAL, and they stay",
        || {
            let mut arg = uapi::RingsHandle {
                rings: rings.rings,
                reserved: 1,
            };
            expect(einval, || session.call(uapi::IOC_RINGS_DESTROY, &mut arg))?;
            Ok(session.destroy_rings(rings.rings)?)
        },
    );
    refused(report, "RUN with a reserved field", einval, || {
        let run = uapi::Run {
            vqp,
            reserved: 1,
            ..Pod::zeroed()
        };
        session.run(&run).map(drop)
    });
    refused(report, "QBIND with a reserved field", einval, || {
        let arg = uapi::QBind {
            vqp,
            port: 1,
            reserved: 1,
        };
        session.call(uapi::IOC_QBIND, &mut { arg })
    });
    refused(report, "LOOKUP with a reserved field", einval, || {
        let arg = uapi::Lookup {
            gid: gid(1),
            reserved: [1, 0, 0, 0],
            ..Pod::zeroed()
        };
        session.call(uapi::IOC_LOOKUP, &mut { arg })
    });
    for (name, request) in [
        ("META_ADD", uapi::IOC_META_ADD),
        ("META_REMOVE", uapi::IOC_META_REMOVE),
    ] {
        refused(
            report,
            &format!("{name} with a reserved field"),
            einval,
            || {
                let arg = uapi::MetaServer {
                    addr: gid(7),
                    port: 7,
                    reserved: [1, 0, 0],
                };
                session.call(request, &mut { arg })
            },
        );
    }
    for (name, request) in [
        ("POOL_PIN", uapi::IOC_POOL_PIN),
        ("POOL_UNPIN", uapi::IOC_POOL_UNPIN),
    ] {
        let name = format!("{name} with a reserved field");
        refused(report, &name, einval, || {
            let arg = uapi::PoolPin {
                gid: gid(1),
                reserved: 1,
            };
            session.call(request, &mut { arg })
        });
    }
    report.check(
        "VQP_DESTROY with a reserved field: EINVAL, and the VQP stays",
        || {
            let mut arg = uapi::VqpHandle { vqp, reserved: 1 };
            expect(einval, || session.call(uapi::IOC_VQP_DESTROY, &mut arg))?;
            Ok(session.destroy_vqp(vqp)?)
        },
    );
    report.check(
        "MR_DEREG with a reserved field: EINVAL, and the region stays",
        || {
            let mut arg = uapi::MrDereg { lkey, reserved: 1 };
            expect(einval, || session.call(uapi::IOC_MR_DEREG, &mut arg))?;
            ensure!(session.deregister(lkey).is_ok(), "it has gone");
            Ok(())
        },
    );
    Ok(())
}
