//! Table of libibverbs's names and their counterparts here; librdmacm's are in [`cm`](crate::cm).
//!
//! | C | here |
//! |---|---|
//! | `ibv_get_device_list`, `ibv_free_device_list` | [`devices`](crate::devices); a [`Device`](crate::Device) is dropped |
//! | `ibv_get_device_name`, `ibv_get_device_guid`, `ibv_get_device_index` | [`Device::name`](crate::Device::name), [`Device::node_guid`](crate::Device::node_guid), [`Device::index`](crate::Device::index) |
//! | `ibv_open_device`, `ibv_close_device` | [`Device::open`](crate::Device::open), [`open`](crate::open); a [`Context`](crate::Context) is dropped |
//! | `ibv_import_device`, `cmd_fd` | [`import`](crate::import()), [`Context::export`](crate::Context::export) |
//! | `ibv_import_pd`, `ibv_import_mr` | [`Context::import_pd`](crate::Context::import_pd), [`ProtectionDomain::import_region`](crate::ProtectionDomain::import_region); dropped |
//! | `ibv_query_device`, `ibv_query_device_ex` | [`Context::query_device`](crate::Context::query_device) |
//! | `ibv_query_port`, `ibv_query_port_speed` | [`Context::query_port`](crate::Context::query_port), [`query_port_speed`](crate::Context::query_port_speed) |
//! | `ibv_query_gid`, `ibv_query_gid_ex` | [`Context::query_gid`](crate::Context::query_gid) |
//! | `ibv_query_gid_table` | [`Context::query_gid_table`](crate::Context::query_gid_table); [`Context::best_gid`](crate::Context::best_gid) chooses |
//! | `ibv_query_pkey`, `ibv_get_pkey_index` | [`Context::query_pkey`](crate::Context::query_pkey), [`pkey_index`](crate::Context::pkey_index) |
//! | `ibv_get_async_event`, `async_fd` | [`Context::async_event`](crate::Context::async_event), [`AsyncEvents`](crate::AsyncEvents) |
//! | `ibv_ack_async_event` | not needed: events name objects by number |
//! | `ibv_alloc_pd`, `ibv_dealloc_pd` | [`Context::alloc_pd`](crate::Context::alloc_pd); dropped |
//! | `ibv_reg_mr`, `ibv_reg_mr_iova` | [`ProtectionDomain::slab`](crate::ProtectionDomain::slab), [`expose`](crate::ProtectionDomain::expose), [`register`](crate::ProtectionDomain::register), [`register_at`](crate::ProtectionDomain::register_at) |
//! | `ibv_alloc_null_mr` | [`Context::null_region`](crate::Context::null_region) |
//! | `ibv_reg_dmabuf_mr` | [`ProtectionDomain::register_dmabuf`](crate::ProtectionDomain::register_dmabuf) |
//! | `ibv_alloc_dm`, `ibv_free_dm` | [`Context::alloc_device_memory`](crate::Context::alloc_device_memory); dropped |
//! | `ibv_memcpy_to_dm`, `ibv_memcpy_from_dm` | [`DeviceMemory::write`](crate::DeviceMemory::write), [`read`](crate::DeviceMemory::read) |
//! | `ibv_reg_dm_mr` | [`ProtectionDomain::register_device_memory`](crate::ProtectionDomain::register_device_memory) |
//! | `ibv_rereg_mr` | [`MemoryRegion::reregister`](crate::MemoryRegion::reregister) |
//! | `ibv_dereg_mr` | [`MemoryRegion::deregister`](crate::MemoryRegion::deregister), or dropped |
//! | `struct ibv_grh` | [`Grh`](crate::Grh) |
//! | `ibv_alloc_mw`, `ibv_dealloc_mw` | [`ProtectionDomain::alloc_window`](crate::ProtectionDomain::alloc_window); dropped |
//! | `ibv_bind_mw`, `ibv_wr_bind_mw` | [`Batch::bind`](crate::Batch::bind), [`unbind`](crate::Batch::unbind); [`RawBatch::rekey`](crate::RawBatch::rekey) over registered memory |
//! | `ibv_wr_local_inv`, `ibv_wr_send_inv` | [`Batch::local_invalidate`](crate::Batch::local_invalidate), [`send_invalidate`](crate::Batch::send_invalidate) |
//! | `mlx5dv_create_mkey`, `mlx5dv_wr_mr_list`, `mlx5dv_wr_mr_interleaved` | [`Context::alloc_indirect_key`](crate::Context::alloc_indirect_key), [`Batch::map_list`](crate::Batch::map_list), [`map_interleaved`](crate::Batch::map_interleaved) |
//! | `struct ibv_sge` | a [`Frame`](crate::Frame); [`Sge`](crate::Sge) in raw posts |
//! | `ibv_create_cq`, `ibv_destroy_cq` | [`Context::create_cq`](crate::Context::create_cq); dropped |
//! | `ibv_resize_cq`, `ibv_modify_cq` | [`CompletionQueue::resize`](crate::CompletionQueue::resize), [`moderate`](crate::CompletionQueue::moderate) |
//! | `ibv_query_rt_values_ex`, `mlx5dv_get_clock_info`, `mlx5dv_ts_to_ns` | [`DeviceClock::ticks`](crate::DeviceClock::ticks), [`read`](crate::DeviceClock::read), [`ClockReading::nanoseconds`](crate::ClockReading::nanoseconds) |
//! | `ibv_create_comp_channel`, `ibv_destroy_comp_channel` | [`Context::create_comp_channel`](crate::Context::create_comp_channel); dropped |
//! | `ibv_req_notify_cq` | [`CompletionQueue::arm`](crate::CompletionQueue::arm);
//! [`wait`](crate::CompletionQueue::wait) arms, too |
//! | `ibv_get_cq_event` | [`CompletionChannel::next_within`](crate::CompletionChannel::next_within), [`try_next`](crate::CompletionChannel::try_next) |
//! | `ibv_ack_cq_events` | not needed: the library counts what it reads |
//! | `ibv_poll_cq` | [`CompletionQueue::poll_into`](crate::CompletionQueue::poll_into), [`poll_with`](crate::CompletionQueue::poll_with) |
//! | `ibv_start_poll`, `ibv_next_poll`, `ibv_end_poll` | [`CompletionQueue::poll`](crate::CompletionQueue::poll), [`Burst::next`](crate::Burst::next); the burst is dropped |
//! | `ibv_wc_read_*`, `struct ibv_wc` | [`Completion`](crate::Completion), [`WorkCompletion`](crate::WorkCompletion) |
//! | `ibv_wc_status_str` | `Display` of [`Failure`](crate::Failure), [`Status::explain`](crate::Status::explain) |
//! | `ibv_create_qp`, `ibv_create_qp_ex` | [`Context::queue_pair`](crate::Context::queue_pair), [`QueuePairBuilder`](crate::QueuePairBuilder) |
//! | `ibv_create_ah`, `ibv_wr_set_ud_addr` | [`Context::create_ah`](crate::Context::create_ah), [`QueuePair::destination`](crate::QueuePair::destination), [`Batch::send_to`](crate::Batch::send_to) |
//! | `ibv_init_ah_from_wc`, `ibv_create_ah_from_wc` | [`Context::sender_address`](crate::Context::sender_address), [`QueuePair::reply_to`](crate::QueuePair::reply_to) |
//! | `IBV_QPT_RAW_PACKET` | [`QueuePairBuilder::raw_packet`](crate::QueuePairBuilder::raw_packet), [`Batch::send_packet`](crate::Batch::send_packet) |
//! | `ibv_create_flow`, `ibv_destroy_flow` | [`FlowRule`](crate::FlowRule), [`QueuePair::steer`](crate::QueuePair::steer); a [`Flow`](crate::Flow) is dropped |
//! | `ibv_create_wq`, `ibv_modify_wq`, `ibv_post_wq_recv` | [`Context::work_queue`](crate::Context::work_queue), [`WorkQueue`](crate::WorkQueue) |
//! | `ibv_create_rwq_ind_table`, `ibv_rx_hash_conf` | [`Context::indirection_table`](crate::Context::indirection_table), [`Context::rss_queue_pair`](crate::Context::rss_queue_pair) |
//! | `ibv_query_ece`, `ibv_set_ece` | [`QueuePair::ece`](crate::QueuePair::ece), [`set_ece`](crate::QueuePair::set_ece) |
//! | `ibv_create_counters`, `ibv_read_counters`, `ibv_attach_counters_point_flow` | [`Context::flow_counters`](crate::Context::flow_counters), [`FlowCounters::read`](crate::FlowCounters::read), [`QueuePair::steer_counted`](crate::QueuePair::steer_counted) |
//! | `ibv_attach_mcast`, `ibv_detach_mcast` | [`QueuePair::attach`](crate::QueuePair::attach); a [`MulticastMembership`](crate::MulticastMembership) is dropped |
//! | `mlx5dv_create_qp` of a DCI, of a DCT | [`QueuePairBuilder::dci`](crate::QueuePairBuilder::dci), [`Context::dc_target`](crate::Context::dc_target) |
//! | `mlx5dv_dci_streams`, `mlx5dv_wr_set_dc_addr_stream`, `mlx5dv_dci_stream_id_reset` | [`QueuePairBuilder::streams`](crate::QueuePairBuilder::streams), [`DcDestination::on_stream`](crate::DcDestination::on_stream), [`QueuePair::reset_stream`](crate::QueuePair::reset_stream) |
//! | `mlx5dv_dm_map_op_addr` | [`DeviceMemory::map_operation`](crate::DeviceMemory::map_operation) |
//! | `mlx5dv_wr_set_dc_addr` | [`QueuePair::destination`](crate::QueuePair::destination), [`DcDestination`](crate::DcDestination) |
//! | `ibv_modify_qp` | [`QueuePair::prepare`](crate::QueuePair::prepare) and [`connect`](crate::QueuePair::connect), or [`init`](crate::QueuePair::init), [`ready_to_receive`](crate::QueuePair::ready_to_receive), [`ready_to_send`](crate::QueuePair::ready_to_send), [`change`](crate::QueuePair::change), [`drain_sends`](crate::QueuePair::drain_sends), [`change_drained`](crate::QueuePair::change_drained), [`resume`](crate::QueuePair::resume), [`recover`](crate::QueuePair::recover), [`fail`](crate::QueuePair::fail), [`reset`](crate::QueuePair::reset); [`modify`](crate::QueuePair::modify) by mask |
//! | `ibv_query_qp` | [`QueuePair::query`](crate::QueuePair::query) |
//! | `ibv_destroy_qp` | [`QueuePair::destroy`](crate::QueuePair::destroy), or dropped; [`CompletionQueue::reclaim`](crate::CompletionQueue::reclaim) gives frames back |
//! | `ibv_post_send` | [`QueuePair::post_send`](crate::QueuePair::post_send) and other `post_*`
//! methods; [`RawBatch::post`](crate::RawBatch::post) by address and key |
//! | `ibv_wr_start`, `ibv_wr_complete` | [`QueuePair::batch`](crate::QueuePair::batch), [`Batch::ring`](crate::Batch::ring) |
//! | `ibv_wr_abort` | drop the [`Batch`](crate::Batch) |
//! | `ibv_wr_send`, `ibv_wr_send_imm` | [`Batch::send`](crate::Batch::send), [`send_imm`](crate::Batch::send_imm) |
//! | `ibv_wr_rdma_write`, `ibv_wr_rdma_write_imm` | [`Batch::write`](crate::Batch::write), [`write_imm`](crate::Batch::write_imm) |
//! | `ibv_wr_rdma_read` | [`Batch::read`](crate::Batch::read) |
//! | `ibv_wr_atomic_cmp_swp`, `ibv_wr_atomic_fetch_add` | [`Batch::compare_swap`](crate::Batch::compare_swap), [`fetch_add`](crate::Batch::fetch_add) |
//! | `ibv_wr_set_inline_data` | [`Batch::send_inline`](crate::Batch::send_inline), [`write_inline`](crate::Batch::write_inline) |
//! | `IBV_SEND_SIGNALED`, `_FENCE`, `_SOLICITED` | [`Wr`](crate::Wr): signaled unless [`unsignaled`](crate::Wr::unsignaled), [`fenced`](crate::Wr::fenced), [`solicited`](crate::Wr::solicited) |
//! | `ibv_post_recv` | [`QueuePair::post_recv`](crate::QueuePair::post_recv), [`RecvBatch::post`](crate::RecvBatch::post) |
//! | `ibv_create_srq`, `ibv_create_srq_ex` | [`Context::shared_receive_queue`](crate::Context::shared_receive_queue); a queue pair's is [`QueuePairBuilder::shared_receives`](crate::QueuePairBuilder::shared_receives) |
//! | `ibv_post_srq_recv` | [`SharedReceiveQueue::post`](crate::SharedReceiveQueue::post), [`batch`](crate::SharedReceiveQueue::batch) |
//! | `ibv_post_srq_ops` | [`SharedReceiveQueue::tag_batch`](crate::SharedReceiveQueue::tag_batch), of a queue [`ForTags`](crate::ForTags) |
//! | `struct ibv_tmh`, `ibv_rvh` | [`TagMessage`](crate::TagMessage), [`Rendezvous`](crate::Rendezvous) |
//! | `ibv_modify_srq` | [`SharedReceiveQueue::set_limit`](crate::SharedReceiveQueue::set_limit), [`resize`](crate::SharedReceiveQueue::resize) |
//! | `ibv_query_srq`, `ibv_get_srq_num` | [`SharedReceiveQueue::query`](crate::SharedReceiveQueue::query), [`srqn`](crate::SharedReceiveQueue::srqn) |
//! | `ibv_destroy_srq` | [`SharedReceiveQueue::destroy`](crate::SharedReceiveQueue::destroy), which gives frames back, or dropped |
//! | `errno` | [`Error::to_errno`](crate::Error::to_errno), [`PostError::to_errno`](crate::PostError::to_errno) |
//! | `struct ibv_device_attr`, `ibv_port_attr`, `ibv_qp_attr`, `ibv_qp_cap` | [`DeviceAttr`](crate::DeviceAttr), [`PortAttr`](crate::PortAttr), [`QpAttr`](crate::QpAttr), [`QpCap`](crate::QpCap) |
//! | the text that `ibv_rc_pingpong` exchanges | [`Endpoint`](crate::Endpoint) |
//!
//! Differences from libibverbs, and what this library lacks, are listed in `docs/PARITY.md` of the
//! repository.
