//! The runs of tests in a Makefile.

/// How a run of tests begins.
const RUNS: [&str; 2] = ["$(PROOF)", "$(CARGO) test"];
/// Variables of long runs begin so.
const VARIABLE: &str = "SOAK";

/// A run of some tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Proof {
    /// Line of the Makefile in which its recipe begins.
    pub(super) line: usize,
    /// Variables that are set for it.
    pub(super) variables: Vec<String>,
    pub(super) packages: Vec<String>,
    pub(super) test: Option<String>,
    /// `--lib`.
    pub(super) library: bool,
    pub(super) filters: Vec<String>,
}

/// Every run of tests for which a package is named or a variable of long runs is set.
pub(super) fn proofs(makefile: &str) -> Vec<Proof> {
    let mut proofs = Vec::new();
    let mut lines = (1..).zip(makefile.lines());
    while let Some((line, text)) = lines.next() {
        let mut recipe = text.to_owned();
        while recipe.ends_with('\\') {
            recipe.pop();
            recipe.push_str(lines.next().map_or("", |(_, more)| more));
        }
        let run = RUNS.iter().find_map(|run| recipe.split_once(run));
        if let Some((before, arguments)) = run.filter(|_| text.starts_with('\t')) {
            proofs.push(proof(line, before, arguments));
        }
    }
    // The others run the tests of the whole workspace.
    proofs.retain(|proof| !proof.packages.is_empty() || !proof.variables.is_empty());
    proofs
}

fn proof(line: usize, before: &str, arguments: &str) -> Proof {
    let set = before
        .split([' ', '\t', ','])
        .filter_map(|word| word.split_once('='));
    let variables = set.filter(|(name, _)| name.starts_with(VARIABLE));
    let mut proof = Proof {
        line,
        variables: variables.map(|(name, _)| name.to_owned()).collect(),
        ..Proof::default()
    };
    let mut words = arguments.trim().trim_end_matches(')').split_whitespace();
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_default().to_owned();
        match word {
            "-p" | "--package" => proof.packages.push(value()),
            "--test" => proof.test = Some(value()),
            "--lib" => proof.library = true,
            // Its value is no filter.
            "--test-threads" | "--features" | "--profile" | "--skip" => drop(value()),
            option if option.starts_with('-') => {}
            filter => proof.filters.push(filter.to_owned()),
        }
    }
    proof
}

#[test]
fn runs_are_read_with_packages_targets_and_filters() {
    let text = "PROOF := $(CARGO) test --quiet\n\nsoak: setup\n\t$(call step,build,$(CARGO) build)\n\
                \t$(call step,crashes,SOAK_A=$${SOAK_A:-20} SOAK_B=1 \\\n\
                \t    $(PROOF) --release --package one --test all a::b -- --nocapture --test-threads 1 c)\n\
                unit:\n\t$(call step,unit,$(CARGO) test --quiet --workspace --lib)\n\
                \t$(call step,d,SOAK=2 $(CARGO) test --package one --package two --lib)\n";
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();

    assert_eq!(
        proofs(text),
        [
            Proof {
                line: 5,
                variables: words(&["SOAK_A", "SOAK_B"]),
                packages: words(&["one"]),
                test: Some("all".to_owned()),
                library: false,
                filters: words(&["a::b", "c"]),
            },
            Proof {
                line: 9,
                variables: words(&["SOAK"]),
                packages: words(&["one", "two"]),
                test: None,
                library: true,
                filters: Vec::new(),
            },
        ]
    );
}
