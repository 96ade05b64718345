package progress

import "github.com/schollz/progressbar/v3"

// Bytes returns a function that shows work counted in bytes on a live line, one line for each name in turn, and a
// function that ends the last line.
func Bytes() (show func(what string, done, total int64), end func()) {
	var bar *progressbar.ProgressBar
	var now string
	end = func() {
		if bar != nil {
			bar.Finish()
		}
	}

	return func(what string, done, total int64) {
		if what != now {
			end()
			now, bar = what, Bar(-1, progressbar.OptionShowBytes(true), progressbar.OptionSetDescription(what))
		}
		if bar != nil {
			bar.ChangeMax64(total)
			bar.Set64(done)
		}
	}, end
}
