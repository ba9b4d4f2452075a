//! Several C threads open, use and close the device at once.

#[test]
fn threads_share_the_device() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("threads") else { return };
    c_stack::run(&mut stack.command(&program)).checks(10);
    std::fs::remove_file(program).unwrap();
}
