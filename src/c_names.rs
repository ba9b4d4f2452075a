//! Table of libibverbs's names and their counterparts here; librdmacm's are in [`cm`](crate::cm).
//!
//! | C | here |
//! |---|---|
//! | `ibv_get_device_list` | [`devices`] |
//! | `ibv_free_device_list` | a [`Device`] is dropped |
//! | `ibv_get_device_name` | [`Device::name`] |
//! | `ibv_get_device_guid` | [`Device::node_guid`] |
//! | `ibv_get_device_index` | [`Device::index`] |
//! | `ibv_open_device` | [`Device::open`], [`open`] |
//! | `ibv_close_device` | a [`Context`] is dropped |
//! | `ibv_import_device` | [`import`] |
//! | `cmd_fd` | [`Context::export`] |
//! | `ibv_import_pd` | [`Context::import_pd`] |
//! | `ibv_import_mr` | [`ProtectionDomain::import_region`] |
//! | `ibv_query_device` | [`Context::query_device`] |
//! | `ibv_query_device_ex` | [`Context::query_device`] |
//! | `ibv_query_port` | [`Context::query_port`] |
//! | `ibv_query_port_speed` | [`Context::query_port_speed`] |
//! | `ibv_query_gid` | [`Context::query_gid`] |
//! | `ibv_query_gid_ex` | [`Context::query_gid`] |
//! | `ibv_query_gid_table` | [`Context::query_gid_table`]; [`Context::best_gid`] chooses |
//! | `ibv_query_pkey` | [`Context::query_pkey`] |
//! | `ibv_get_pkey_index` | [`Context::pkey_index`] |
//! | `ibv_get_async_event` | [`Context::async_event`] |
//! | `async_fd` | [`AsyncEvents`] |
//! | `ibv_ack_async_event` | not needed: events name objects by number |
//! | `ibv_alloc_pd` | [`Context::alloc_pd`] |
//! | `ibv_dealloc_pd` | a [`ProtectionDomain`] is dropped |
//! | `ibv_reg_mr` | [`ProtectionDomain::slab`], [`ProtectionDomain::expose`], |
//! |  | [`ProtectionDomain::register`], [`ProtectionDomain::register_at`] |
//! | `ibv_reg_mr_iova` | [`ProtectionDomain::slab`], [`ProtectionDomain::expose`], |
//! |  | [`ProtectionDomain::register`], [`ProtectionDomain::register_at`] |
//! | `ibv_alloc_null_mr` | [`Context::null_region`] |
//! | `ibv_reg_dmabuf_mr` | [`ProtectionDomain::register_dmabuf`] |
//! | `mlx5dv_reg_dmabuf_mr` | [`ProtectionDomain::register_dmabuf_direct`] |
//! | `ibv_alloc_dm` | [`Context::alloc_device_memory`] |
//! | `ibv_free_dm` | a [`DeviceMemory`] is dropped |
//! | `ibv_memcpy_to_dm` | [`DeviceMemory::write`] |
//! | `ibv_memcpy_from_dm` | [`DeviceMemory::read`] |
//! | `ibv_reg_dm_mr` | [`ProtectionDomain::register_device_memory`] |
//! | `ibv_rereg_mr` | [`MemoryRegion::reregister`] |
//! | `ibv_dereg_mr` | [`MemoryRegion::deregister`], or dropped |
//! | `struct ibv_grh` | [`Grh`] |
//! | `ibv_alloc_mw` | [`ProtectionDomain::alloc_window`] |
//! | `ibv_dealloc_mw` | a window is dropped |
//! | `ibv_bind_mw` | [`Batch::bind`], [`Batch::unbind`]; [`RawBatch::rekey`] over registered |
//! |  | memory |
//! | `ibv_wr_bind_mw` | [`Batch::bind`], [`Batch::unbind`]; [`RawBatch::rekey`] over registered |
//! |  | memory |
//! | `ibv_wr_local_inv` | [`Batch::local_invalidate`] |
//! | `ibv_wr_send_inv` | [`Batch::send_invalidate`] |
//! | `mlx5dv_create_mkey` | [`Context::alloc_indirect_key`] |
//! | `mlx5dv_wr_mr_list` | [`Batch::map_list`] |
//! | `mlx5dv_wr_mr_interleaved` | [`Batch::map_interleaved`] |
//! | `struct ibv_sge` | a [`Frame`]; [`Sge`] in raw posts |
//! | `ibv_create_cq` | [`Context::create_cq`] |
//! | `ibv_destroy_cq` | a [`CompletionQueue`] is dropped |
//! | `ibv_resize_cq` | [`CompletionQueue::resize`] |
//! | `ibv_modify_cq` | [`CompletionQueue::moderate`] |
//! | `ibv_query_rt_values_ex` | [`DeviceClock::ticks`] |
//! | `mlx5dv_get_clock_info` | [`DeviceClock::read`] |
//! | `mlx5dv_ts_to_ns` | [`ClockReading::nanoseconds`] |
//! | `ibv_create_comp_channel` | [`Context::create_comp_channel`] |
//! | `ibv_destroy_comp_channel` | a [`CompletionChannel`] is dropped |
//! | `ibv_req_notify_cq` | [`CompletionQueue::arm`]; [`CompletionQueue::wait`] arms, too |
//! | `ibv_get_cq_event` | [`CompletionChannel::next_within`], [`CompletionChannel::try_next`] |
//! | `ibv_ack_cq_events` | not needed: the library counts what it reads |
//! | `ibv_poll_cq` | [`CompletionQueue::poll_into`], [`CompletionQueue::poll_with`] |
//! | `ibv_start_poll` | [`CompletionQueue::poll`] |
//! | `ibv_next_poll` | [`Burst::next`] |
//! | `ibv_end_poll` | the [`Burst`] is dropped |
//! | `ibv_wc_read_*` | [`Completion`], [`WorkCompletion`] |
//! | `struct ibv_wc` | [`WorkCompletion`] |
//! | `ibv_wc_status_str` | `Display` of [`Failure`], [`Status::explain`] |
//! | `ibv_create_qp` | [`Context::queue_pair`], [`QueuePairBuilder`] |
//! | `ibv_create_qp_ex` | [`Context::queue_pair`], [`QueuePairBuilder`] |
//! | `ibv_create_ah` | [`Context::create_ah`], [`QueuePair::destination`] |
//! | `ibv_wr_set_ud_addr` | [`Batch::send_to`] |
//! | `ibv_init_ah_from_wc` | [`Context::sender_address`] |
//! | `ibv_create_ah_from_wc` | [`QueuePair::reply_to`] |
//! | `IBV_QPT_RAW_PACKET` | [`QueuePairBuilder::raw_packet`], [`Batch::send_packet`] |
//! | `ibv_create_flow` | [`FlowRule`], [`QueuePair::steer`] |
//! | `ibv_destroy_flow` | a [`Flow`] is dropped |
//! | `ibv_create_wq` | [`Context::work_queue`] |
//! | `ibv_modify_wq` | [`WorkQueue`] |
//! | `ibv_post_wq_recv` | [`WorkQueue`] |
//! | `ibv_create_rwq_ind_table` | [`Context::indirection_table`] |
//! | `ibv_rx_hash_conf` | [`Context::rss_queue_pair`] |
//! | `ibv_query_ece` | [`QueuePair::ece`] |
//! | `ibv_set_ece` | [`QueuePair::set_ece`] |
//! | `ibv_create_counters` | [`Context::flow_counters`] |
//! | `ibv_read_counters` | [`FlowCounters::read`] |
//! | `ibv_attach_counters_point_flow` | [`QueuePair::steer_counted`] |
//! | `ibv_query_comp_cntr_caps` | [`Context::counter_caps`] |
//! | `ibv_create_comp_cntr` | [`Context::completion_counter`] |
//! | `ibv_qp_attach_comp_cntr` | [`QueuePair::attach_counter`] |
//! | `ibv_read_comp_cntr` | [`CompletionCounter::counts`] |
//! | `ibv_set_comp_cntr` | [`CompletionCounter::set_completed`] |
//! | `ibv_inc_comp_cntr` | [`CompletionCounter::add_completed`] |
//! | `ibv_attach_mcast` | [`QueuePair::attach`] |
//! | `ibv_detach_mcast` | a [`MulticastMembership`] is dropped |
//! | `mlx5dv_create_qp` of a DCI, of a DCT | [`QueuePairBuilder::dci`], [`Context::dc_target`] |
//! | `mlx5dv_dci_streams` | [`QueuePairBuilder::streams`] |
//! | `mlx5dv_wr_set_dc_addr_stream` | [`DcDestination::on_stream`] |
//! | `mlx5dv_dci_stream_id_reset` | [`QueuePair::reset_stream`] |
//! | `mlx5dv_dm_map_op_addr` | [`DeviceMemory::map_operation`] |
//! | `mlx5dv_wr_set_dc_addr` | [`QueuePair::destination`], [`DcDestination`] |
//! | `ibv_modify_qp` | [`QueuePair::prepare`] and [`QueuePair::connect`], or [`QueuePair::init`], |
//! |  | [`QueuePair::ready_to_receive`], [`QueuePair::ready_to_send`], [`QueuePair::change`], |
//! |  | [`QueuePair::drain_sends`], [`QueuePair::change_drained`], [`QueuePair::resume`], |
//! |  | [`QueuePair::recover`], [`QueuePair::fail`], [`QueuePair::reset`]; [`QueuePair::modify`] |
//! |  | by mask |
//! | `ibv_query_qp` | [`QueuePair::query`] |
//! | `ibv_destroy_qp` | [`QueuePair::destroy`], or dropped; [`CompletionQueue::reclaim`] gives |
//! |  | frames back |
//! | `ibv_post_send` | [`QueuePair::post_send`] and other `post_*` methods; [`RawBatch::post`] by |
//! |  | address and key |
//! | `ibv_wr_start` | [`QueuePair::batch`] |
//! | `ibv_wr_complete` | [`Batch::ring`] |
//! | `ibv_wr_abort` | drop the [`Batch`] |
//! | `ibv_wr_send` | [`Batch::send`] |
//! | `ibv_wr_send_imm` | [`Batch::send_imm`] |
//! | `ibv_wr_rdma_write` | [`Batch::write`] |
//! | `ibv_wr_rdma_write_imm` | [`Batch::write_imm`] |
//! | `ibv_wr_rdma_read` | [`Batch::read`] |
//! | `ibv_wr_atomic_cmp_swp` | [`Batch::compare_swap`] |
//! | `ibv_wr_atomic_fetch_add` | [`Batch::fetch_add`] |
//! | `ibv_wr_set_inline_data` | [`Batch::send_inline`], [`Batch::write_inline`] |
//! | `IBV_SEND_SIGNALED` | [`Wr`]: the default; [`Wr::unsignaled`] leaves it out |
//! | `IBV_SEND_FENCE` | [`Wr::fenced`] |
//! | `IBV_SEND_SOLICITED` | [`Wr::solicited`] |
//! | `ibv_post_recv` | [`QueuePair::post_recv`], [`RecvBatch::post`] |
//! | `ibv_create_srq` | [`Context::shared_receive_queue`]; a queue pair's is |
//! |  | [`QueuePairBuilder::shared_receives`] |
//! | `ibv_create_srq_ex` | [`Context::shared_receive_queue`]; a queue pair's is |
//! |  | [`QueuePairBuilder::shared_receives`] |
//! | `ibv_post_srq_recv` | [`SharedReceiveQueue::post`], [`SharedReceiveQueue::batch`] |
//! | `ibv_post_srq_ops` | [`SharedReceiveQueue::tag_batch`], of a queue [`ForTags`] |
//! | `struct ibv_tmh` | [`TagMessage`] |
//! | `ibv_rvh` | [`Rendezvous`] |
//! | `ibv_modify_srq` | [`SharedReceiveQueue::set_limit`], [`SharedReceiveQueue::resize`] |
//! | `ibv_query_srq` | [`SharedReceiveQueue::query`] |
//! | `ibv_get_srq_num` | [`SharedReceiveQueue::srqn`] |
//! | `ibv_destroy_srq` | [`SharedReceiveQueue::destroy`], which gives frames back, or dropped |
//! | `errno` | [`Error::to_errno`], [`PostError::to_errno`] |
//! | `struct ibv_device_attr` | [`DeviceAttr`] |
//! | `ibv_port_attr` | [`PortAttr`] |
//! | `ibv_qp_attr` | [`QpAttr`] |
//! | `ibv_qp_cap` | [`QpCap`] |
//! | the text that `ibv_rc_pingpong` exchanges | [`Endpoint`] |
//!
//! Differences from libibverbs, and what this library lacks, are listed in `docs/PARITY.md` of the
//! repository.
//!
//! [`AsyncEvents`]: crate::event::AsyncEvents
//! [`Batch`]: crate::Batch
//! [`Batch::bind`]: crate::Batch::bind
//! [`Batch::compare_swap`]: crate::Batch::compare_swap
//! [`Batch::fetch_add`]: crate::Batch::fetch_add
//! [`Batch::local_invalidate`]: crate::Batch::local_invalidate
//! [`Batch::map_interleaved`]: crate::Batch::map_interleaved
//! [`Batch::map_list`]: crate::Batch::map_list
//! [`Batch::read`]: crate::Batch::read
//! [`Batch::ring`]: crate::Batch::ring
//! [`Batch::send`]: crate::Batch::send
//! [`Batch::send_imm`]: crate::Batch::send_imm
//! [`Batch::send_inline`]: crate::Batch::send_inline
//! [`Batch::send_invalidate`]: crate::Batch::send_invalidate
//! [`Batch::send_packet`]: crate::Batch::send_packet
//! [`Batch::send_to`]: crate::Batch::send_to
//! [`Batch::unbind`]: crate::Batch::unbind
//! [`Batch::write`]: crate::Batch::write
//! [`Batch::write_imm`]: crate::Batch::write_imm
//! [`Batch::write_inline`]: crate::Batch::write_inline
//! [`Burst`]: crate::Burst
//! [`Burst::next`]: crate::Burst::next
//! [`ClockReading::nanoseconds`]: crate::clock::ClockReading::nanoseconds
//! [`Completion`]: crate::Completion
//! [`CompletionChannel`]: crate::CompletionChannel
//! [`CompletionChannel::next_within`]: crate::CompletionChannel::next_within
//! [`CompletionChannel::try_next`]: crate::CompletionChannel::try_next
//! [`CompletionCounter::add_completed`]: crate::counter::CompletionCounter::add_completed
//! [`CompletionCounter::counts`]: crate::counter::CompletionCounter::counts
//! [`CompletionCounter::set_completed`]: crate::counter::CompletionCounter::set_completed
//! [`CompletionQueue`]: crate::CompletionQueue
//! [`CompletionQueue::arm`]: crate::CompletionQueue::arm
//! [`CompletionQueue::moderate`]: crate::CompletionQueue::moderate
//! [`CompletionQueue::poll`]: crate::CompletionQueue::poll
//! [`CompletionQueue::poll_into`]: crate::CompletionQueue::poll_into
//! [`CompletionQueue::poll_with`]: crate::CompletionQueue::poll_with
//! [`CompletionQueue::reclaim`]: crate::CompletionQueue::reclaim
//! [`CompletionQueue::resize`]: crate::CompletionQueue::resize
//! [`CompletionQueue::wait`]: crate::CompletionQueue::wait
//! [`Context`]: crate::Context
//! [`Context::alloc_device_memory`]: crate::Context::alloc_device_memory
//! [`Context::alloc_indirect_key`]: crate::Context::alloc_indirect_key
//! [`Context::alloc_pd`]: crate::Context::alloc_pd
//! [`Context::async_event`]: crate::Context::async_event
//! [`Context::best_gid`]: crate::Context::best_gid
//! [`Context::completion_counter`]: crate::Context::completion_counter
//! [`Context::counter_caps`]: crate::Context::counter_caps
//! [`Context::create_ah`]: crate::Context::create_ah
//! [`Context::create_comp_channel`]: crate::Context::create_comp_channel
//! [`Context::create_cq`]: crate::Context::create_cq
//! [`Context::dc_target`]: crate::Context::dc_target
//! [`Context::export`]: crate::Context::export
//! [`Context::flow_counters`]: crate::Context::flow_counters
//! [`Context::import_pd`]: crate::Context::import_pd
//! [`Context::indirection_table`]: crate::Context::indirection_table
//! [`Context::null_region`]: crate::Context::null_region
//! [`Context::pkey_index`]: crate::Context::pkey_index
//! [`Context::query_device`]: crate::Context::query_device
//! [`Context::query_gid`]: crate::Context::query_gid
//! [`Context::query_gid_table`]: crate::Context::query_gid_table
//! [`Context::query_pkey`]: crate::Context::query_pkey
//! [`Context::query_port`]: crate::Context::query_port
//! [`Context::query_port_speed`]: crate::Context::query_port_speed
//! [`Context::queue_pair`]: crate::Context::queue_pair
//! [`Context::rss_queue_pair`]: crate::Context::rss_queue_pair
//! [`Context::sender_address`]: crate::Context::sender_address
//! [`Context::shared_receive_queue`]: crate::Context::shared_receive_queue
//! [`Context::work_queue`]: crate::Context::work_queue
//! [`DcDestination`]: crate::dc::DcDestination
//! [`DcDestination::on_stream`]: crate::dc::DcDestination::on_stream
//! [`Device`]: crate::Device
//! [`Device::index`]: crate::Device::index
//! [`Device::name`]: crate::Device::name
//! [`Device::node_guid`]: crate::Device::node_guid
//! [`Device::open`]: crate::Device::open
//! [`DeviceAttr`]: crate::DeviceAttr
//! [`DeviceClock::read`]: crate::clock::DeviceClock::read
//! [`DeviceClock::ticks`]: crate::clock::DeviceClock::ticks
//! [`DeviceMemory`]: crate::memory::DeviceMemory
//! [`DeviceMemory::map_operation`]: crate::memory::DeviceMemory::map_operation
//! [`DeviceMemory::read`]: crate::memory::DeviceMemory::read
//! [`DeviceMemory::write`]: crate::memory::DeviceMemory::write
//! [`Endpoint`]: crate::Endpoint
//! [`Error::to_errno`]: crate::Error::to_errno
//! [`Failure`]: crate::Failure
//! [`Flow`]: crate::flow::Flow
//! [`FlowCounters::read`]: crate::flow::FlowCounters::read
//! [`FlowRule`]: crate::flow::FlowRule
//! [`ForTags`]: crate::tags::ForTags
//! [`Frame`]: crate::Frame
//! [`Grh`]: crate::attr::Grh
//! [`MemoryRegion::deregister`]: crate::MemoryRegion::deregister
//! [`MemoryRegion::reregister`]: crate::MemoryRegion::reregister
//! [`MulticastMembership`]: crate::multicast::MulticastMembership
//! [`PortAttr`]: crate::PortAttr
//! [`PostError::to_errno`]: crate::PostError::to_errno
//! [`ProtectionDomain`]: crate::ProtectionDomain
//! [`ProtectionDomain::alloc_window`]: crate::ProtectionDomain::alloc_window
//! [`ProtectionDomain::expose`]: crate::ProtectionDomain::expose
//! [`ProtectionDomain::import_region`]: crate::ProtectionDomain::import_region
//! [`ProtectionDomain::register`]: crate::ProtectionDomain::register
//! [`ProtectionDomain::register_at`]: crate::ProtectionDomain::register_at
//! [`ProtectionDomain::register_device_memory`]: crate::ProtectionDomain::register_device_memory
//! [`ProtectionDomain::register_dmabuf`]: crate::ProtectionDomain::register_dmabuf
//! [`ProtectionDomain::register_dmabuf_direct`]: crate::ProtectionDomain::register_dmabuf_direct
//! [`ProtectionDomain::slab`]: crate::ProtectionDomain::slab
//! [`QpAttr`]: crate::attr::QpAttr
//! [`QpCap`]: crate::QpCap
//! [`QueuePair::attach`]: crate::QueuePair::attach
//! [`QueuePair::attach_counter`]: crate::QueuePair::attach_counter
//! [`QueuePair::batch`]: crate::QueuePair::batch
//! [`QueuePair::change`]: crate::QueuePair::change
//! [`QueuePair::change_drained`]: crate::QueuePair::change_drained
//! [`QueuePair::connect`]: crate::QueuePair::connect
//! [`QueuePair::destination`]: crate::QueuePair::destination
//! [`QueuePair::destroy`]: crate::QueuePair::destroy
//! [`QueuePair::drain_sends`]: crate::QueuePair::drain_sends
//! [`QueuePair::ece`]: crate::QueuePair::ece
//! [`QueuePair::fail`]: crate::QueuePair::fail
//! [`QueuePair::init`]: crate::QueuePair::init
//! [`QueuePair::modify`]: crate::QueuePair::modify
//! [`QueuePair::post_recv`]: crate::QueuePair::post_recv
//! [`QueuePair::post_send`]: crate::QueuePair::post_send
//! [`QueuePair::prepare`]: crate::QueuePair::prepare
//! [`QueuePair::query`]: crate::QueuePair::query
//! [`QueuePair::ready_to_receive`]: crate::QueuePair::ready_to_receive
//! [`QueuePair::ready_to_send`]: crate::QueuePair::ready_to_send
//! [`QueuePair::recover`]: crate::QueuePair::recover
//! [`QueuePair::reply_to`]: crate::QueuePair::reply_to
//! [`QueuePair::reset`]: crate::QueuePair::reset
//! [`QueuePair::reset_stream`]: crate::QueuePair::reset_stream
//! [`QueuePair::resume`]: crate::QueuePair::resume
//! [`QueuePair::set_ece`]: crate::QueuePair::set_ece
//! [`QueuePair::steer`]: crate::QueuePair::steer
//! [`QueuePair::steer_counted`]: crate::QueuePair::steer_counted
//! [`QueuePairBuilder`]: crate::QueuePairBuilder
//! [`QueuePairBuilder::dci`]: crate::QueuePairBuilder::dci
//! [`QueuePairBuilder::raw_packet`]: crate::QueuePairBuilder::raw_packet
//! [`QueuePairBuilder::shared_receives`]: crate::QueuePairBuilder::shared_receives
//! [`QueuePairBuilder::streams`]: crate::QueuePairBuilder::streams
//! [`RawBatch::post`]: crate::raw::RawBatch::post
//! [`RawBatch::rekey`]: crate::raw::RawBatch::rekey
//! [`RecvBatch::post`]: crate::RecvBatch::post
//! [`Rendezvous`]: crate::tags::Rendezvous
//! [`Sge`]: crate::raw::Sge
//! [`SharedReceiveQueue::batch`]: crate::SharedReceiveQueue::batch
//! [`SharedReceiveQueue::destroy`]: crate::SharedReceiveQueue::destroy
//! [`SharedReceiveQueue::post`]: crate::SharedReceiveQueue::post
//! [`SharedReceiveQueue::query`]: crate::SharedReceiveQueue::query
//! [`SharedReceiveQueue::resize`]: crate::SharedReceiveQueue::resize
//! [`SharedReceiveQueue::set_limit`]: crate::SharedReceiveQueue::set_limit
//! [`SharedReceiveQueue::srqn`]: crate::SharedReceiveQueue::srqn
//! [`SharedReceiveQueue::tag_batch`]: crate::SharedReceiveQueue::tag_batch
//! [`Status::explain`]: crate::Status::explain
//! [`TagMessage`]: crate::tags::TagMessage
//! [`WorkCompletion`]: crate::WorkCompletion
//! [`WorkQueue`]: crate::rss::WorkQueue
//! [`Wr`]: crate::Wr
//! [`Wr::fenced`]: crate::Wr::fenced
//! [`Wr::solicited`]: crate::Wr::solicited
//! [`Wr::unsignaled`]: crate::Wr::unsignaled
//! [`devices`]: crate::devices
//! [`import`]: crate::import()
//! [`open`]: crate::open
