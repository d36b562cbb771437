//! Compares the structs with the installed headers, by a C program that prints the C compiler's offsets.

use std::fmt::Write as _;
use std::process::Command;

fn program() -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <rdma/rdma_cma.h>\nint main(void) {\n",
    );
    for layout in abi::LAYOUTS {
        let name = layout.name;
        writeln!(text, "printf(\"{name} %zu\\n\", sizeof(struct {name}));")
            .expect("a string takes all");
        for (field, _) in layout.fields {
            writeln!(
                text,
                "printf(\"{name}.{field} %zu\\n\", offsetof(struct {name}, {field}));"
            )
            .expect("a string takes all");
        }
    }
    text + "return 0; }\n"
}

fn expected() -> Vec<String> {
    let mut lines = Vec::new();
    for layout in abi::LAYOUTS {
        lines.push(format!("{} {}", layout.name, layout.size));
        for (field, offset) in layout.fields {
            lines.push(format!("{}.{field} {offset}", layout.name));
        }
    }
    lines
}

#[test]
fn the_compiler_of_c_sees_the_same_offsets() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program()).expect("the target folder can be written");
    let compiled = Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output();
    let compiled = compiled.expect("this test needs the package gcc");
    assert!(
        compiled.status.success(),
        "this test needs the packages gcc and librdmacm-dev (rdma-core 44 or later):\n{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let output = Command::new(&binary)
        .output()
        .expect("the compiled program runs");
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(seen.lines().collect::<Vec<_>>(), expected());
}
