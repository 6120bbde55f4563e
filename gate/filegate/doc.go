// Package filegate guards one file on a local disk: a write with a fencing
// token lower than the highest one seen does not replace it.
//
//	gate, err := filegate.New(ctx, filegate.Config{Path: "/srv/shop/summary.json", Lock: "invoices"})
//	err = gate.Do(ctx, token, func(ctx context.Context, u *filegate.Update) error {
//		old, err := u.Old()
//		if err != nil {
//			return err
//		}
//		return json.NewEncoder(u).Encode(next(old))
//	})
//
// Readers need nothing: the file is plain, and they see an old or a new
// version, never a half. To guard a directory, guard a manifest that names its
// files, and give these names that are never used again.
//
// The gate keeps its record in a folder beside the file (.NAME.holdfast). All
// is prepared there, outside of any lock; then one step, under a flock of that
// folder, judges the token and renames. A holder that is stopped while it
// prepares holds nobody up; one that is stopped within the step makes the Arm
// of a newer holder fail in bounded time ([fence.ErrUndrained]). A process that
// dies leaves the lock to the kernel, and at most a temporary file, which the
// next one removes: nothing is ever taken over by its age.
//
// Only what goes through a gate is fenced, and only processes of one host: New
// refuses file systems whose locks are known not to hold. It needs Linux. Do
// not delete the folder, for it is the memory; a directory that was restored
// from its own backup knows older marks: arm it with a fresh token before
// traffic, and look at [Gate.Show].
//
// The package imports package fence and nothing else of ours. Start reading at
// [New], then [Gate.Do].
package filegate
