// Package browser starts a headless Chromium for tests and screenshots of report pages.
package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/chromedp/chromedp"
)

// Find returns the path of a Chromium: the value of PROMPTFED_CHROMIUM, else an installed one, else the copy from
// tools/fetch-chromium.sh in bin/chromium of the checkout that contains the working directory.
func Find() (string, error) {
	names := []string{"chromium", "chromium-browser", "google-chrome"}
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		names = append(names, filepath.Join(dir, "bin", "chromium", "chromium"))
	}

	if name := os.Getenv("PROMPTFED_CHROMIUM"); name != "" {
		names = []string{name}
	}

	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}

	return "", fmt.Errorf("no Chromium: install one, run tools/fetch-chromium.sh, or correct PROMPTFED_CHROMIUM")
}

// Start starts the browser at path with its own empty profile. stop ends it and removes the profile.
func Start(ctx context.Context, path string) (browser context.Context, stop func(), err error) {
	profile, err := os.MkdirTemp("", "promptfed-browser")
	if err != nil {
		return nil, nil, err
	}

	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(profile),
		chromedp.DisableGPU, chromedp.Flag("force-color-profile", "srgb"), chromedp.Env("HOME="+profile,
			"XDG_CACHE_HOME="+profile))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}

	// the fetched copy includes its libraries and a font
	place := filepath.Dir(path)
	if _, err := os.Stat(filepath.Join(place, "fonts.conf")); err == nil {
		options = append(options, chromedp.Env("LD_LIBRARY_PATH="+filepath.Join(place, "lib"), "FONTCONFIG_PATH="+
			place))
	}

	allocator, endAllocator := chromedp.NewExecAllocator(ctx, options...)
	browser, endBrowser := chromedp.NewContext(allocator)
	stop = func() {
		_ = chromedp.Cancel(browser) // waits for the processes, so that the profile can be removed
		endBrowser()
		endAllocator()
		os.RemoveAll(profile)
	}

	if err := chromedp.Do(browser); err != nil {
		stop()
		return nil, nil, fmt.Errorf("%s does not start: %w", path, err)
	}

	return browser, stop, nil
}
