//! Resource requests and limits of a container.

use std::collections::BTreeMap;

use vocabulary::LabelKey;

use crate::cluster::selector::label_key;
use crate::fault::Fault;
use crate::sip_cluster::{Amount, ResourcesSpec};

/// Suffixes of amounts, the longer ones first: binary, then decimal.
const SUFFIXES: [&str; 16] = [
    "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u", "m", "k", "M", "G", "T", "P", "E", "",
];

/// Amounts by the name of the resource. The API server checks whether a request is within its limit.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Resources {
    requests: BTreeMap<LabelKey, String>,
    limits: BTreeMap<LabelKey, String>,
}

impl Resources {
    /// What it is sure to have.
    #[must_use]
    pub fn requests(&self) -> &BTreeMap<LabelKey, String> {
        &self.requests
    }

    /// The upper bounds.
    #[must_use]
    pub fn limits(&self) -> &BTreeMap<LabelKey, String> {
        &self.limits
    }
}

pub(super) fn parse(spec: &ResourcesSpec, path: &str, faults: &mut Vec<Fault>) -> Resources {
    let ResourcesSpec { requests, limits } = spec;
    Resources {
        requests: amounts(requests.as_ref(), &format!("{path}.requests"), faults),
        limits: amounts(limits.as_ref(), &format!("{path}.limits"), faults),
    }
}

fn amounts(
    amounts: Option<&BTreeMap<String, Amount>>,
    path: &str,
    faults: &mut Vec<Fault>,
) -> BTreeMap<LabelKey, String> {
    amounts
        .into_iter()
        .flatten()
        .filter_map(|(name, amount)| {
            let path = format!("{path}[{name}]");
            let amount = amount.to_string();
            let name = label_key(name, &path, faults);
            if !is_amount(&amount) {
                let rule = "must be an amount that is not negative, such as 500m, 2 or 256Mi";
                faults.push(Fault::text(&path, &amount, rule));
                return None;
            }
            Some((name?, amount))
        })
        .collect()
}

/// The form of Kubernetes' quantities without a sign:
/// <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>
fn is_amount(text: &str) -> bool {
    // A number with an exponent has no suffix; "1E" is an exa all the same.
    let plain = |number: &str| {
        number.starts_with(|first: char| first.is_ascii_digit() || first == '.')
            && number.parse::<f64>().is_ok_and(f64::is_finite)
    };
    SUFFIXES
        .iter()
        .any(|suffix| text.strip_suffix(suffix).is_some_and(plain))
}

#[cfg(test)]
mod tests {
    use super::is_amount;

    #[test]
    fn amounts_are_those_of_kubernetes() {
        for good in [
            "0", "1", "100m", "0.5", ".5", "2Gi", "1.5Gi", "1e3", "12E", "1E3", "500u",
        ] {
            assert!(is_amount(good), "{good}");
        }
        for bad in [
            "", "-1", "+1", "m", "Mi", "1 Gi", "1GiB", "1gi", "inf", "nan", "1e999", "0x10", "1,5", "1Gi\n",
        ] {
            assert!(!is_amount(bad), "{bad}");
        }
    }
}
