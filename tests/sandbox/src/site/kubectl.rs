//! kubectl, as the site's administrator uses it.

use std::{path::Path, process::Stdio};

use tokio::io::AsyncWriteExt as _;

use super::{Error, Site};
use crate::{process, process::Program, tools};

/// What a program that has ended by itself has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether its exit status was 0.
    pub success: bool,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Site {
    /// Runs kubectl with all rights. That it fails may be what a test wants to see: look at the answer.
    ///
    /// # Errors
    /// When kubectl cannot be run.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<Answer, Error> {
        self.kubectl_with(arguments, "").await
    }

    /// Runs kubectl with text on its standard input.
    ///
    /// # Errors
    /// When kubectl cannot be run.
    pub async fn kubectl_with(&self, arguments: &[&str], stdin: &str) -> Result<Answer, Error> {
        let program = Program::new("kubectl", tools::path("kubectl")?)
            .env("KUBECONFIG", self.admin_kubeconfig())
            // Its cache of the API's types must not be a neighbour's.
            .env("KUBECACHEDIR", self.directory().join("kubectl-cache"))
            .args(arguments);
        Ok(run(&program, stdin).await?)
    }

    /// Runs kubectl, and fails if it does. Returns its standard output.
    ///
    /// # Errors
    /// When kubectl cannot be run or fails.
    pub async fn kubectl_ok(&self, arguments: &[&str]) -> Result<String, Error> {
        self.succeed(arguments, "").await
    }

    /// `kubectl apply --filename PATH`, with the strict validation that is kubectl's default.
    ///
    /// # Errors
    /// When kubectl or the API server refuses it.
    pub async fn apply_file(&self, path: &Path) -> Result<String, Error> {
        self.succeed(&["apply", "--filename", &path.display().to_string()], "")
            .await
    }

    /// `kubectl apply --server-side` of YAML text. Tests that share a site may apply the same objects at the same time: of two client-side
    /// applies that find nothing, one fails with `AlreadyExists`.
    ///
    /// # Errors
    /// When kubectl or the API server refuses it.
    pub async fn apply_yaml(&self, yaml: &str) -> Result<String, Error> {
        self.succeed(
            &["apply", "--server-side", "--force-conflicts", "--filename", "-"],
            yaml,
        )
        .await
    }

    /// `kubectl apply --kustomize DIRECTORY`.
    ///
    /// # Errors
    /// When kubectl or the API server refuses it.
    pub async fn apply_kustomization(&self, directory: &Path) -> Result<String, Error> {
        self.succeed(&["apply", "--kustomize", &directory.display().to_string()], "")
            .await
    }

    async fn succeed(&self, arguments: &[&str], stdin: &str) -> Result<String, Error> {
        let answer = self.kubectl_with(arguments, stdin).await?;
        if answer.success {
            Ok(answer.stdout)
        } else {
            Err(Error::Kubectl {
                arguments: arguments.join(" "),
                stderr: answer.stderr.trim().to_owned(),
            })
        }
    }
}

/// Runs a program that ends by itself.
pub(crate) async fn run(program: &Program, stdin: &str) -> Result<Answer, process::Error> {
    let failed = |source| process::Error::Start {
        program: program.name().to_owned(),
        source,
    };
    let mut child = program
        .command()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut input = child.stdin.take();
    let feed = async {
        if let Some(mut input) = input.take() {
            // A program that does not read its input closes it; that is its right.
            let _ = input.write_all(stdin.as_bytes()).await;
        }
    };
    let ((), output) = tokio::join!(feed, child.wait_with_output());
    let output = output.map_err(failed)?;
    Ok(Answer {
        success: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
