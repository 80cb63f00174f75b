//! What was kept, as people ask for it.

use crate::project::one_stack;

#[test]
fn a_state_is_pulled_byte_for_byte() {
    let test = one_stack("", "output \"text\" { value = \"plain\" }\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let pulled = test.cli(&["state", "pull", "app"]).expect(0).stdout;
    assert!(pulled.contains("\"serial\":1"), "{pulled}");
    let old = test.cli(&["state", "pull", "app", "--version", "1"]);
    assert_eq!(old.expect(0).stdout, pulled);
    let none = test
        .cli(&["state", "pull", "app", "--version", "7"])
        .expect(1);
    assert!(none.stderr.contains("has no version 7"), "{}", none.stderr);
}
