// The OpenAI Agents SDK for JavaScript. Modes: responses (its default), chat; stream.
import { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, run as runAgent, setTracingDisabled, tool } from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';

import { MAX_TOKENS, SYSTEM, TEMPERATURE, TOOLS, main } from './desk.mjs';

setTracingDisabled(true); // traces would go to a service of OpenAI's

async function answer(run) {
  const client = new OpenAI({ baseURL: run.base_url, apiKey: run.api_key });
  const Model = run.modes.has('chat') ? OpenAIChatCompletionsModel : OpenAIResponsesModel;
  const agent = new Agent({
    name: 'helpdesk',
    instructions: SYSTEM,
    model: new Model(client, run.model),
    modelSettings: { temperature: TEMPERATURE, maxTokens: MAX_TOKENS },
    tools: Object.entries(TOOLS).map(([name, { argument, description }]) =>
      tool({
        name,
        description,
        strict: true,
        parameters: z.object({ [argument]: z.string() }),
        execute: async (given) => run.call(name, given),
      }),
    ),
  });
  if (!run.modes.has('stream')) return (await runAgent(agent, run.question)).finalOutput;
  const streamed = await runAgent(agent, run.question, { stream: true });
  await streamed.completed;
  return streamed.finalOutput;
}

await main(answer);
