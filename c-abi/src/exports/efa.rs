//! Exported names of libefa (`efadv_*`). `libefa.so.1` is a link to this library.
#![allow(unsafe_code, reason = "assembly")]

use crate::device::comp_cntr;
use crate::efadv::caps;
use crate::efadv::direct;
use crate::efadv::make;
use crate::exports::verbs::node;

node! { "EFA_1.0":
    efadv_create_driver_qp = make::create_driver_qp;
}

node! { "EFA_1.1":
    efadv_create_qp_ex = make::create_qp_ex;
    efadv_query_ah = caps::query_ah;
    efadv_query_device = caps::query_device;
}

node! { "EFA_1.2":
    efadv_cq_from_ibv_cq_ex = make::cq_from_ibv_cq_ex;
    efadv_create_cq = make::create_cq;
}

node! { "EFA_1.3":
    efadv_query_mr = caps::query_mr;
}

node! { "EFA_1.4":
    efadv_query_cq = direct::query_cq;
    efadv_query_qp_wqs = direct::query_qp_wqs;
}

node! { "EFA_1.5":
    efadv_get_max_rq_depth = caps::get_max_rq_depth;
    efadv_get_max_sq_depth = caps::get_max_sq_depth;
}

node! { "EFA_1.6":
    efadv_qp_from_ibv_qp_ex = make::qp_from_ibv_qp_ex;
}

node! { "EFA_1.7":
    efadv_create_comp_cntr = comp_cntr::create_efa;
}
