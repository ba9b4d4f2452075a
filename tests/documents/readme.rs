//! The README shows the example as it is.

#[test]
fn the_readme_shows_the_example() {
    let readme = include_str!("../../README.md");
    let example = include_str!("../../examples/rc_send_recv.rs");
    assert!(
        readme.contains(&format!("```rust\n{example}```\n")),
        "copy examples/rc_send_recv.rs over"
    );
}
