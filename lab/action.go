package lab

import "slices"

// What a visitor can ask for.
const (
	doAcquire = "acquire"
	doWrite   = "write"
	doPause   = "pause"
	doWake    = "wake"
	doRelease = "release"
	doKill    = "kill"
	doStart   = "start"
	doValue   = "value"
	doCompare = "compare"
	doReset   = "reset"
)

var workerDos = []string{doAcquire, doWrite, doPause, doWake, doRelease, doKill, doStart}

// An action is what a visitor asks for, as it is sent.
type action struct {
	Do     string  `json:"do"`
	Worker string  `json:"worker"`
	On     *bool   `json:"on"`
	Value  *string `json:"value"`
	settingsBody
}

var actionFields = append([]string{"do", "worker", "on", "value"}, settingsFields...)

// check refuses an action that makes no sense at any time: one with a field
// missing, and one with a field that does not belong to it.
func (a action) check() error {
	ofWorker := slices.Contains(workerDos, a.Do)
	switch {
	case !ofWorker && a.Do != doValue && a.Do != doCompare && a.Do != doReset:
		return badf("do is %q: want one of %q", clip(a.Do), append(slices.Clone(workerDos), doValue, doCompare, doReset))
	case (ofWorker || a.Do == doValue) && !slices.Contains(cast, a.Worker):
		return badf("worker is %q: want one of %q", clip(a.Worker), cast)
	case (a.Do == doCompare || a.Do == doReset) && a.Worker != "":
		return badf("%s takes no worker", a.Do)
	case (a.Do == doCompare) != (a.On != nil):
		return badf("on goes with compare, and compare with on: true or false")
	case (a.Do == doValue) != (a.Value != nil):
		return badf("value goes with the action value, and that with a value")
	case a.Do != doReset && (a.TTLMS != nil || a.Compare != nil || a.Values != nil):
		return badf("ttlMs, compare and values go with reset")
	case a.Do == doValue:
		return checkValue(*a.Value)
	}
	_, err := a.apply(defaultSettings())
	return err
}
