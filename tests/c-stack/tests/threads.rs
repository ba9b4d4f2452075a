//! Several C threads open, use and close the device at once.

mod common;

#[test]
fn threads_share_the_device() {
    let Some(stack) = common::c_stack() else { return };
    let Some(program) = stack.compile("threads") else { return };
    common::run(&mut stack.command(&program)).checks(10);
    std::fs::remove_file(program).unwrap();
}
