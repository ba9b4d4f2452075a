//! Raw commands from C on the preloaded device, most of them invalid.

#[test]
fn bad_calls_get_their_errno() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("bad_calls") else { return };
    for link in ["eth", "ib"] {
        c_stack::run(stack.command(&program).env("UVERBS_SOFTHCA_LINK", link)).checks(70);
    }
    std::fs::remove_file(program).unwrap();
}
