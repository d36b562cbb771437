//! The result of a check, as text and as JSON.

use serde_json::{Value, json};

use super::{Finding, Level, worst};

/// The last line of the text.
const fn verdict(worst: Level) -> &'static str {
    match worst {
        Level::Fine | Level::Note => "RDMA programs run here: rockery run -- PROGRAM",
        Level::Interferes => {
            "RDMA programs run here, with rockery run -- PROGRAM; without it they meet what interferes"
        }
        Level::Broken => "RDMA programs do not run here",
    }
}

/// A line for each finding, remedies below, and the verdict.
pub(super) fn text(findings: &[Finding]) -> String {
    let subjects = findings.iter().map(|finding| finding.subject.len());
    let width = subjects.max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let (level, subject) = (finding.level.name(), &finding.subject);
        text += &format!("{level:<10}  {subject:<width$}  {}\n", finding.found);
        if let Some(remedy) = &finding.remedy {
            text += &format!("{:<10}  {:<width$}  -> {remedy}\n", "", "");
        }
    }
    text + verdict(worst(findings)) + "\n"
}

/// All findings, and whether RDMA programs run.
pub(super) fn json(findings: &[Finding]) -> Value {
    let one = |finding: &Finding| {
        json!({
            "subject": finding.subject,
            "level": finding.level.name(),
            "found": finding.found,
            "remedy": finding.remedy,
        })
    };
    let worst = worst(findings);
    json!({
        "runs": worst < Level::Broken,
        "interferes": findings.iter().any(|finding| finding.level == Level::Interferes),
        "findings": findings.iter().map(one).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides() {
        let fine = Finding::fine("devices", "rk_lo");
        let note = Finding::new(Level::Note, "memory files", "none", "allow them");
        let other = Finding::new(Level::Interferes, "mlx5_0", "port 1 is DOWN", "hide it");
        let broken = Finding::new(Level::Broken, "UDP port 4791", "taken", "end that");
        let mut findings = vec![fine, note];
        assert!(text(&findings).ends_with("run here: rockery run -- PROGRAM\n"));
        findings.push(other);
        assert!(text(&findings).contains("interferes  mlx5_0        port 1 is DOWN\n"));
        let document = json(&findings);
        assert_eq!(
            (&document["runs"], &document["interferes"]),
            (&json!(true), &json!(true))
        );
        findings.push(broken);
        assert_eq!(json(&findings)["runs"], json!(false));
        assert!(text(&findings).ends_with("RDMA programs do not run here\n"));
    }
}
