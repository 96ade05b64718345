// Handlers of signals that libraries replace: see saveHandlers and repairHandlers.
#include <signal.h>

static struct sigaction before[NSIG];

static void save(void) {
	for (int s = 1; s < NSIG; s++) sigaction(s, NULL, &before[s]);
}

static int handled(const struct sigaction *a) { return a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN; }

static void repair(void) {
	for (int s = 1; s < NSIG; s++) {
		struct sigaction now;
		if (sigaction(s, NULL, &now) || !handled(&now)) continue;
		if (handled(&before[s])) {
			if (now.sa_handler != before[s].sa_handler || now.sa_flags != before[s].sa_flags)
				sigaction(s, &before[s], NULL);
		} else if (!(now.sa_flags & SA_ONSTACK)) {
			now.sa_flags |= SA_ONSTACK;
			sigaction(s, &now, NULL);
		}
	}
}
