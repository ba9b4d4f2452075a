//! Reliable connections from C, through libibverbs and libmlx5, in the modes that change libmlx5's
//! WQEs and doorbells.

/// Minimum number of checks in `rc_loop`.
const CHECKS: usize = 300;

#[test]
fn rc_works_in_every_mode() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("rc_loop") else { return };
    let modes: [&[(&str, &str)]; 11] = [
        &[],
        // Without spin locks.
        &[("MLX5_SINGLE_THREADED", "1")],
        // Without small payloads in CQEs.
        &[("MLX5_SCATTER_TO_CQE", "0")],
        // Doorbells of 8 bytes on the non-cached page only.
        &[("MLX5_SHUT_UP_BF", "1")],
        // BlueFlame for inline data only.
        &[("MLX5_POST_SEND_PREFER_BF", "0")],
        &[("MLX5_CQE_SIZE", "128")],
        // Contiguous buffers, which the kernel is asked for and refuses.
        &[("MLX5_QP_ALLOC_TYPE", "PREFER_CONTIG"), ("MLX5_CQ_ALLOC_TYPE", "PREFER_CONTIG")],
        // Few doorbell registers, shared by queue pairs.
        &[("MLX5_TOTAL_UUARS", "4"), ("MLX5_NUM_LOW_LAT_UUARS", "1")],
        &[("UVERBS_SOFTHCA_LINK", "ib")],
        &[("UVERBS_SOFTHCA_LINK", "ib"), ("MLX5_SCATTER_TO_CQE", "0")],
        &[("UVERBS_SOFTHCA_LINK", "ib"), ("MLX5_SHUT_UP_BF", "1"), ("MLX5_SINGLE_THREADED", "1")],
    ];
    for mode in modes {
        eprintln!("rc_loop {mode:?}");
        c_stack::run(stack.command(&program).envs(mode.iter().copied())).checks(CHECKS);
    }
    std::fs::remove_file(program).unwrap();
}

#[test]
fn every_command_is_recorded() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("rc_loop") else { return };
    let log = program.with_extension("log");
    c_stack::run(stack.command(&program).env("UVERBS_SOFTHCA_LOG", &log)).checks(CHECKS);
    let text = std::fs::read_to_string(&log).unwrap();
    let has = |part: &str| text.lines().any(|line| line.contains(part));
    // Linux's numbers of GET_CONTEXT, the mmap of a UAR page, REG_MR, CQ.CREATE, QP.CREATE,
    // MODIFY_QP and QP.DESTROY.
    for part in
        [" 0.3 ", " mmap 4096 0x900000 = 0", " 0.0(0x9) ", " 3.0 ", " 4.0 ", " 0.0(0x1a) ", " 4.1 "]
    {
        assert!(has(part), "{part:?} is missing:\n{text}");
    }
    // The line has the payloads and the result.
    let line = text.lines().find(|line| line.contains(" 4.0 ")).unwrap();
    assert!(
        line.ends_with(" = 0") && line.contains(":in56=") && line.contains(":out40="),
        "{line}"
    );
    assert!(!text.contains("=?"), "a payload is missing:\n{text}");
    std::fs::remove_file(log).unwrap();
    std::fs::remove_file(program).unwrap();
}
