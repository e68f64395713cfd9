//! Repair of databases whose files temporarily cannot be read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::damaged::{damage, names, sample, samples_in_every_end_state, texts};
use common::{contents, open};
use taut_store::disk::{Fault, SimulatedDisk};
use taut_store::{RepairError, repair_on};

/// A file that cannot be read temporarily, or for lack of permission, may be intact. Its rows are not treated as lost.
#[test]
fn a_read_that_fails_stops_the_repair_and_loses_nothing() {
    let mut stopped = 0;
    for (end_state, disk, states) in samples_in_every_end_state() {
        for read in 0.. {
            let (damaged, to) = (disk.after_kill(), SimulatedDisk::new());
            damaged.set_fault(Some(Fault::FailReadAt(read)));
            match repair_on(Arc::new(damaged.clone()), Arc::new(to.clone())) {
                Err(error) => {
                    let text = error.to_string();
                    assert!(
                        text.contains("/simulated") && text.contains("simulated failure"),
                        "{end_state}, {read}: {text}"
                    );
                    assert!(!to.files().contains_key("catalog"), "{end_state}, {read}");
                    stopped += u64::from(matches!(error, RepairError::Unreadable(_)));
                }
                Ok(report) => {
                    assert!(report.is_complete(), "{end_state}, {read}: {}", texts(&report));
                    let store = open(&to).unwrap();
                    assert_eq!(contents(&store).unwrap(), *states.last().unwrap(), "{end_state}, {read}");
                }
            }
            if damaged.reads() <= read {
                break;
            }
        }
    }
    assert!(stopped > 20, "{stopped}");
    // The same with a damaged block: a segment that temporarily cannot be read is not reported as lost.
    let (disk, store, _) = sample();
    drop(store);
    let name = names(&disk, "blocks/", ".block").remove(0);
    damage(&disk, &name, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let whole = repair_on(Arc::new(disk.after_kill()), Arc::new(SimulatedDisk::new())).unwrap();
    for read in 0.. {
        let (damaged, to) = (disk.after_kill(), SimulatedDisk::new());
        damaged.set_fault(Some(Fault::FailReadAt(read)));
        if let Ok(report) = repair_on(Arc::new(damaged.clone()), Arc::new(to)) {
            assert_eq!(texts(&report), texts(&whole), "{read}");
        }
        if damaged.reads() <= read {
            break;
        }
    }
}
