//! The environment of a program that loads `libibverbs.so.1`, and empties it later, as nginx does.
//!
//! # Safety
//!
//! Functions of the library are called by the signatures of `infiniband/verbs.h`.
#![allow(unsafe_code, reason = "loads a library, and calls C functions that are found by name")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a place in an array is read")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::process::Command;

/// Set for the process that loads the library.
const CHILD: &str = "UVERBS_TEST_LOADS";
const DEVICE: &str = "UVERBS_DEVICE";

type GetDeviceList = unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void;
type GetDeviceName = unsafe extern "C" fn(*mut c_void) -> *const c_char;

/// Body of the child process: one thread, and no other test.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let library = std::env::current_exe().unwrap().with_file_name("libibverbs.so");
    let library = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: a C string; the library stays.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "{library:?}");
    let function = |name: &CStr| {
        // SAFETY: a handle that is open, and a C string.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        found
    };
    // SAFETY: the header's signature.
    let list: GetDeviceList = unsafe { std::mem::transmute(function(c"ibv_get_device_list")) };
    // SAFETY: the header's signature.
    let name: GetDeviceName = unsafe { std::mem::transmute(function(c"ibv_get_device_name")) };
    let names = || {
        let mut count = 0;
        // SAFETY: a place for the count.
        let devices = unsafe { list(&raw mut count) };
        let names = (0..count as usize).map(|at| {
            // SAFETY: so many devices are in the list.
            let device = unsafe { devices.add(at).read() };
            // SAFETY: a device of a list that isn't freed.
            let name = unsafe { name(device) };
            // SAFETY: a C string that stays as long as the device.
            unsafe { CStr::from_ptr(name) }.to_str().unwrap()
        });
        names.collect::<Vec<_>>()
    };
    // SAFETY: no other thread reads the environment.
    unsafe { libc::clearenv() };
    assert_eq!(names(), ["softhca0"], "as it was when the library was loaded");
    // SAFETY: no other thread reads the environment.
    unsafe { std::env::set_var(DEVICE, "softhca0,softhca1") };
    assert_eq!(names(), ["softhca0", "softhca1"], "as the program has set it");
}

#[test]
fn the_environment_is_that_of_the_loading() {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "child", "--test-threads=1", "--nocapture"]);
    let output = child.env(CHILD, "1").env(DEVICE, "softhca0").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
