//! Targets: the crates whose tests are tried, and what may kill their mutants.
//!
//! Rules: 1. Programs are tried in this order, the quickest first; the first that fails has killed the mutant.
//!        2. None of them knows a real clock: a busy machine would kill mutants. So no test of the runtime is among them.
//! Knows nothing of: mutants, processes.

/// One crate.
#[derive(Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its package.
    pub package: &'static str,
    /// The folder of its source.
    pub source: &'static str,
    /// Files that are no product, each with the reason.
    pub left_out: &'static [(&'static str, &'static str)],
    /// What may kill its mutants.
    pub programs: &'static [Program],
}

/// Programs of one package.
#[derive(Debug)]
pub enum Program {
    /// Its unit tests, and all in its folder `tests/`.
    Tests {
        /// The package.
        package: &'static str,
    },
    /// A slice of a proof.
    Proof {
        /// The package.
        package: &'static str,
        /// The program.
        name: &'static str,
        /// Its arguments.
        arguments: &'static [&'static str],
    },
}

impl Program {
    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Program::Tests { package } => format!("the tests of {package}"),
            Program::Proof { name, .. } => (*name).to_string(),
        }
    }
}

const STORMS: Program = Program::Proof {
    package: "kattu-simulator",
    name: "kattu-sim",
    arguments: &["--seed", "700000", "--storms", "20", "--minutes", "1"],
};

/// All crates that can be tried.
pub const TARGETS: &[Target] = &[
    Target {
        name: "raft",
        package: "kattu-raft",
        source: "core/raft/src",
        left_out: &[
            (
                "core/raft/src/canonical.rs",
                "never called while a cluster serves: it tells explorers which states are one",
            ),
            ("core/raft/src/invariants.rs", "judges states for the proofs"),
        ],
        programs: &[
            Program::Tests { package: "kattu-raft" },
            Program::Tests { package: "kattu-node" },
            Program::Proof {
                package: "kattu-explore",
                name: "kattu-explore",
                arguments: &[
                    "--scope",
                    "election-2",
                    "--scope",
                    "replicate-2",
                    "--scope",
                    "late-2",
                    "--scope",
                    "grow-2",
                ],
            },
            STORMS,
        ],
    },
    Target {
        name: "kv",
        package: "kattu-kv",
        source: "core/kv/src",
        left_out: &[],
        programs: &[Program::Tests { package: "kattu-kv" }, Program::Tests { package: "kattu-node" }, STORMS],
    },
    Target {
        name: "member",
        package: "kattu-member",
        source: "shell/member/src",
        left_out: &[],
        programs: &[Program::Tests { package: "kattu-member" }, STORMS],
    },
];

/// The crate of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
