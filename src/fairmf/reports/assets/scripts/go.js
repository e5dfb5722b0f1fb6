startTheme();
startDial();
startSpread();
startLists();
startItems();
startGroups();
startTraining();
