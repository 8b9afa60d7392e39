//! The order of preferences among placements that all fit.

/// What is better avoided in a placement, the most important first: the order of the fields is the policy, and everything that
/// compares hosts or placements derives from it. The smallest is the best.
///
/// Of one host the amounts are 0 or 1, or how many roles it matches, and it has no spread ([`super::score::Drawbacks`]). Of
/// a whole placement they are sums ([`super::solution::Quality`]). As units of a price ([`super::price::Prices`]) each outweighs
/// all that come after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Preferences<Amount, Spread> {
    /// Hosts that are not in the namespaces of the cluster's members.
    pub(crate) outside: Amount,
    /// How unevenly members are spread over the domains of the hierarchy, level by level, the outermost first.
    pub(crate) spread: Spread,
    /// Other roles of the request that the hosts match, so that they are left to those.
    pub(crate) wanted_by_others: Amount,
    /// Hosts whose hardware is not known.
    pub(crate) uninspected: Amount,
    /// Hosts that are off, or whose BMC reports a fault.
    pub(crate) impaired: Amount,
}

impl<Spread> Preferences<u32, Spread> {
    /// Adds what is better avoided in one host to the sums of a placement. What the host adds to the spread depends on the other
    /// hosts, so that is computed apart.
    pub(crate) fn add_host(&mut self, host: Preferences<u8, ()>) {
        let Preferences {
            outside,
            spread: (),
            wanted_by_others,
            uninspected,
            impaired,
        } = host;
        self.outside += u32::from(outside);
        self.wanted_by_others += u32::from(wanted_by_others);
        self.uninspected += u32::from(uninspected);
        self.impaired += u32::from(impaired);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Amounts = Preferences<u32, u32>;
    type Amount = fn(&mut Amounts) -> &mut u32;

    /// The most important first, as the documentation of `decide` states the order.
    const ORDER: [(&str, Amount); 5] = [
        ("one namespace", |amounts| &mut amounts.outside),
        ("an even spread", |amounts| &mut amounts.spread),
        ("hosts for other roles", |amounts| &mut amounts.wanted_by_others),
        ("inspected hosts", |amounts| &mut amounts.uninspected),
        ("powered and healthy hosts", |amounts| &mut amounts.impaired),
    ];

    #[test]
    fn each_preference_outweighs_all_that_come_after_it() {
        for (index, (what, amount)) in ORDER.iter().enumerate() {
            let mut lacking = Amounts::default();
            *amount(&mut lacking) = 1;
            let mut lacking_all_later = Amounts::default();
            for (_, later) in &ORDER[index + 1..] {
                *later(&mut lacking_all_later) = u32::MAX;
            }
            assert!(lacking > lacking_all_later, "{what}");
        }
    }

    #[test]
    fn sums_of_a_placement_add_up_its_hosts() {
        let host = Preferences {
            outside: 1,
            spread: (),
            wanted_by_others: 3,
            uninspected: 0,
            impaired: 1,
        };
        let mut sums = Amounts {
            spread: 7,
            ..Amounts::default()
        };
        for _ in 0..2 {
            sums.add_host(host);
        }
        let expected = Preferences {
            outside: 2,
            spread: 7,
            wanted_by_others: 6,
            uninspected: 0,
            impaired: 2,
        };
        assert_eq!(sums, expected);
    }
}
